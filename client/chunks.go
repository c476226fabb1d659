package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Chunk is what the API tells of a chunk.
type Chunk struct {
	ChunkKey, Key, EffectiveDate, Status string
	AttemptCount                         int
	NextRetryAt, StartedAt, CompletedAt  *time.Time
	S3Path                               string
	RowCount, ByteCount                  int64
	Checksum                             string // sha256 of the file, hex
	Reused, Superseded                   bool
	ErrorCode, ErrorMessage              string
	Attempts                             []Attempt // oldest first; of one chunk only
	Raw                                  Raw       `json:"-"`
}

// Attempt is one run of a chunk.
type Attempt struct {
	Number           int
	Started, Ended   *time.Time
	Outcome          string // RUNNING, DONE, RETRY, GIVEN_BACK, LOST, DLQ or CANCELLED
	ErrorCode, Error string
	Worker           string // for operators
}

// ChunksFilter leaves out what is empty. Limit is 1 to 200.
type ChunksFilter struct {
	Status, Key string
	Limit       int
}

// Chunks is a page of a job's chunks and the cursor of the next one, which is empty on the last.
func (c Client) Chunks(ctx context.Context, jobID string, f ChunksFilter, cursor string) (chunks []Chunk, next string, err error) {
	var page struct {
		Chunks     []Raw
		NextCursor string
	}
	_, err = c.call(ctx, http.MethodGet, "/jobs/"+url.PathEscape(jobID)+"/chunks",
		values("status", f.Status, "key", f.Key, "limit", strconv.Itoa(f.Limit), "cursor", cursor), nil, &page)
	if err != nil {
		return nil, "", err
	}
	chunks, err = each(c, page.Chunks, func(ch *Chunk, raw Raw) { ch.Raw = raw })
	return chunks, page.NextCursor, err
}

// Chunk asks for a chunk with its attempts.
func (c Client) Chunk(ctx context.Context, jobID, chunkKey string) (chunk Chunk, err error) {
	chunk.Raw, err = c.call(ctx, http.MethodGet, "/jobs/"+url.PathEscape(jobID)+"/chunks/"+url.PathEscape(chunkKey), nil, nil, &chunk)
	return chunk, err
}

// FileURL asks for an address from which anyone may download a chunk's file until the given time.
func (c Client) FileURL(ctx context.Context, jobID, chunkKey string) (address string, expires time.Time, err error) {
	var file struct {
		URL       string
		ExpiresAt time.Time
	}
	_, err = c.call(ctx, http.MethodGet, "/jobs/"+url.PathEscape(jobID)+"/files/"+url.PathEscape(chunkKey), nil, nil, &file)
	return file.URL, file.ExpiresAt, err
}

// each reads the entries of a list, which exportd always gives, be it empty.
func each[T any](c Client, entries []Raw, keep func(*T, Raw)) ([]T, error) {
	if entries == nil {
		return nil, c.stranger()
	}
	list := make([]T, len(entries))
	for i, raw := range entries {
		if json.Unmarshal(raw, &list[i]) != nil {
			return nil, c.stranger()
		}
		keep(&list[i], raw)
	}
	return list, nil
}
