package console

import (
	"errors"
	"net/http"

	"exportd/client"
)

func asProblem(err error, into **client.Problem) bool { return errors.As(err, into) }

type fleetData struct {
	Workers           []client.Worker
	Slots, Busy, Over int // Over: chunks of workers that are listed beyond the bound
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
