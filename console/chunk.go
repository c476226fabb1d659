package console

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"slices"

	"exportd/client"
	"exportd/export"
)

type chunkData struct {
	JobID, Path string
	Chunk       client.Chunk
	ShowParked  bool
	Every       int
}

func (v *visit) chunk() error {
	jobID := v.r.PathValue("job")
	chunk, err := v.api.Chunk(v.ctx(), jobID, v.r.PathValue("chunk"))
	if err != nil {
		return err
	}
	d := chunkData{JobID: jobID, Path: chunkPath(jobID, chunk.ChunkKey), Chunk: chunk, ShowParked: v.Parked != nil && chunk.Status == "DLQ"}
	if export.ChunkStatus(chunk.Status).Open() {
		d.Every = 3
	}
	return v.render(http.StatusOK, "chunk", view{Title: chunk.Key + " " + day(chunk.EffectiveDate), Nav: "jobs", Data: d})
}

type parkedData struct {
	Path, Key string
	Headers   [][2]string
	Body      string
	Why       string // there is none
}

// parked looks through the queue, which takes its time: only when somebody asks.
func (v *visit) parked() error {
	chunk, err := v.api.Chunk(v.ctx(), v.r.PathValue("job"), v.r.PathValue("chunk"))
	if err != nil {
		return err
	}
	d := parkedData{Path: chunkPath(v.r.PathValue("job"), chunk.ChunkKey), Key: chunk.Key + " " + day(chunk.EffectiveDate), Why: "There is no parking queue here: chunks are dispatched by the database alone."}
	if key, date, err := export.ParseChunkKey(chunk.ChunkKey); err == nil && v.Parked != nil {
		message, err := v.Parked(v.ctx(), export.Ref{JobID: v.r.PathValue("job"), Key: key, Date: date})
		switch {
		case err != nil:
			v.Log.WarnContext(v.ctx(), "browse the parking queue", "error", err)
			d.Why = "The broker does not answer. Try again in a moment."
		case message == nil:
			d.Why = "Its message is not there any more: somebody took it from the queue, or it is not sent yet."
		default:
			d.Body = indented(message.Body)
			for _, name := range slices.Sorted(maps.Keys(message.Headers)) {
				d.Headers = append(d.Headers, [2]string{name, message.Headers[name]})
			}
		}
	}
	if v.r.Header.Get("HX-Request") != "" {
		v.r.URL.RawQuery = "part=parked"
	}
	return v.render(http.StatusOK, "parked", view{Title: "Parked message", Nav: "jobs", Data: d})
}

func indented(body []byte) string {
	var b bytes.Buffer
	if json.Indent(&b, body, "", "  ") != nil {
		return string(body)
	}
	return b.String()
}
