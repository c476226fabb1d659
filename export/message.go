package export

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
	"unicode/utf8"
)

// Message is one broker message: a text body and headers that the broker offers as selectable properties.
type Message struct {
	Body    []byte
	Headers map[string]string
}

// Header names on both queues.
const (
	HeaderJobID       = "jobId"
	HeaderChunkKey    = "chunkKey"
	HeaderAttempt     = "attempt"
	HeaderTraceparent = "traceparent"
	HeaderRequestID   = "requestId"
	HeaderReason      = "exportd-reason" // why a body was parked as it came
	HeaderCorrelation = "correlation-id"
	HeaderPriority    = "priority"
)

type workBody struct {
	JobID         string `json:"jobId"`
	Key           string `json:"key"`
	EffectiveDate string `json:"effectiveDate"`
}

// WorkMessage is the message that announces a debt on the work queue.
func WorkMessage(d Debt) Message {
	body, _ := json.Marshal(workBody{d.JobID, d.Key, d.Date.String()})
	return Message{Body: body, Headers: headers(d.Ref, d.Attempt, d.Priority, d.RequestID, d.Traceparent)}
}

func headers(r Ref, attempt, priority int, requestID, traceparent string) map[string]string {
	h := map[string]string{
		HeaderJobID: r.JobID, HeaderChunkKey: r.ChunkKey(), HeaderCorrelation: r.JobID,
		HeaderAttempt: strconv.Itoa(attempt), HeaderPriority: strconv.Itoa(priority),
	}
	if requestID != "" {
		h[HeaderRequestID] = requestID
	}
	if traceparent != "" {
		h[HeaderTraceparent] = traceparent
	}
	return h
}

// ParseWorkMessage reads the body of a work message. Fields that it does not know are ignored, so that old consumers take the messages of newer
// relays. Any error means: this is no chunk of ours, park it as it came.
func ParseWorkMessage(body []byte) (Ref, error) {
	if !utf8.Valid(body) {
		return Ref{}, errors.New("the body is not valid UTF-8")
	}
	var w workBody
	dec := json.NewDecoder(bytes.NewReader(body))
	if err := dec.Decode(&w); err != nil {
		return Ref{}, fmt.Errorf("the body is not a JSON object with jobId, key and effectiveDate: %w", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return Ref{}, errors.New("something follows the JSON object")
	}
	if !ValidJobID(w.JobID) {
		return Ref{}, fmt.Errorf("jobId %q is not of the form J<yyyymmdd>_<number>", w.JobID)
	}
	if err := CheckKey(w.Key); err != nil {
		return Ref{}, fmt.Errorf("key: %w", err)
	}
	date, err := ParseDate(w.EffectiveDate)
	if err != nil {
		return Ref{}, fmt.Errorf("effectiveDate: %w", err)
	}
	return Ref{JobID: w.JobID, Key: w.Key, Date: date}, nil
}

// DeadLetterNotice is what the parking queue says of a dead-lettered chunk. A repeat carries the same ParkingID.
type DeadLetterNotice struct {
	Ref
	ParkingID   string // unique per dead-lettering
	Attempts    int
	ErrorCode   string
	Error       string // at most MaxErrorText bytes
	FailedAt    time.Time
	Priority    int
	RequestID   string
	Traceparent string
}

// Message is the notice as it is sent.
func (n DeadLetterNotice) Message() Message {
	body, _ := json.Marshal(struct {
		workBody
		ParkingID string    `json:"parkingId"`
		ChunkKey  string    `json:"chunkKey"`
		Attempts  int       `json:"attempts"`
		ErrorCode string    `json:"errorCode"`
		Error     string    `json:"error"`
		FailedAt  time.Time `json:"failedAt"`
	}{workBody{n.JobID, n.Key, n.Date.String()}, n.ParkingID, n.ChunkKey(), n.Attempts, n.ErrorCode, ErrorText(n.Error), n.FailedAt.UTC()})
	return Message{Body: body, Headers: headers(n.Ref, n.Attempts, n.Priority, n.RequestID, n.Traceparent)}
}
