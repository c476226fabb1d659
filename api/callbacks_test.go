package api_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"exportd/api"
	"exportd/export"

	"github.com/prometheus/client_golang/prometheus"
)

const calledBack = `{"items":[{"key":"ABC","effectiveDates":["20250215"]}],"callbackUrl":"https://receiver.example/x"}`

func TestACallbackURLThatWillNotBeCalledIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		callbacks func(string) error
		detail    string
	}{
		"no secret": {nil, "EXPORTD_WEBHOOK_SECRET"},
		"private":   {func(url string) error { return errors.New("is private: " + url) }, "is private: https://receiver.example/x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t, func(cfg *api.Config) { cfg.Callbacks = c.callbacks })
			p := w.do("POST", "/jobs", calledBack).problem(t, 422, "callback-refused")
			if len(p.Errors) != 1 || p.Errors[0].Pointer == nil || *p.Errors[0].Pointer != "/callbackUrl" || !strings.Contains(p.Errors[0].Detail, c.detail) {
				t.Errorf("%+v", p)
			}
			if n := len(w.store.all()); n > 0 {
				t.Errorf("%d jobs are stored", n)
			}
			if a := w.do("POST", "/jobs", oneChunk); a.StatusCode != 202 {
				t.Errorf("without one: %d %s", a.StatusCode, a.body)
			}
		})
	}
}

func TestACallbackURLThatCanBeCalledIsStored(t *testing.T) {
	t.Parallel()
	w := setup(t, nil)
	if a := w.do("POST", "/jobs", calledBack); a.StatusCode != 202 {
		t.Fatalf("%d %s", a.StatusCode, a.body)
	}
	if got := w.store.all()[0].req.CallbackURL; got != "https://receiver.example/x" {
		t.Errorf("stored %q", got)
	}
}

func TestAnEventIsTheJobAsGETShowsIt(t *testing.T) {
	t.Parallel()
	server := api.New(api.Config{S3BasePath: "s3://bucket/exports", Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
	at := time.Date(2026, 1, 2, 10, 0, 2, 500e6, time.UTC)
	for status, kind := range map[export.JobStatus]string{export.Completed: "job.completed", export.Failed: "job.failed", export.Cancelled: "job.cancelled"} {
		body, err := server.EventBody(export.Job{
			ID: "J20260102_000001", Tenant: "hidden", Status: status, Total: 2, Done: 1, Failed: 1, CreatedAt: at, UpdatedAt: at.Add(time.Hour), StartedAt: &at, CompletedAt: &at, ErrorMessage: "x",
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := served().CheckEvent(body); err != nil {
			t.Errorf("%s: %v", body, err)
		}
		var e struct {
			Type, Timestamp string
			Data            struct{ JobID, Status, S3BasePath, ErrorMessage string }
		}
		if err := json.Unmarshal(body, &e); err != nil {
			t.Fatal(err)
		}
		if e.Type != kind || e.Timestamp != "2026-01-02T10:00:02.500Z" || e.Data.JobID != "J20260102_000001" || e.Data.Status != string(status) ||
			e.Data.S3BasePath != "s3://bucket/exports" || e.Data.ErrorMessage != "x" || strings.Contains(string(body), "hidden") {
			t.Errorf("%s", body)
		}
	}
	if err := served().CheckEvent([]byte(`{"type":"job.ended","timestamp":"2026-01-02T10:00:02.500Z","data":{}}`)); err == nil {
		t.Error("anything is an event")
	}
}
