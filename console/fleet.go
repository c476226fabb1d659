package console

import (
	"net/http"

	"exportd/client"
)

type fleetData struct {
	Workers     []client.Worker
	Slots, Busy int
}

func (v *visit) fleet() error {
	if !v.operator {
		return errOperators
	}
	workers, err := v.api.Workers(v.ctx())
	if err != nil {
		return err
	}
	d := fleetData{Workers: workers}
	for _, w := range workers {
		d.Slots += w.Concurrency
		d.Busy += len(w.Chunks)
	}
	return v.render(http.StatusOK, "fleet", view{Title: "Fleet", Nav: "fleet", Data: d})
}

type queuesData struct{ Queues []client.Queue }

func (v *visit) queues() error {
	if !v.operator {
		return errOperators
	}
	queues, err := v.api.Queues(v.ctx())
	if err != nil {
		return err
	}
	return v.render(http.StatusOK, "queues", view{Title: "Queues", Nav: "queues", Data: queuesData{queues}})
}
