package api

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
)

// readJSON reads the request's body to its end, but never more than MaxBody and one byte, and never longer than the deadline that guard set.
func (a *API) readJSON(c *gin.Context) ([]byte, error) {
	r := c.Request
	if err := checkMedia(r.Header); err != nil {
		return nil, err
	}
	if r.ContentLength > a.MaxBody {
		return nil, errTooLarge
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, a.MaxBody+1))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, errSlowBody
	case err != nil:
		return nil, errBrokenBody
	case int64(len(body)) > a.MaxBody:
		return nil, errTooLarge
	}
	// Else the deadline would strike while the answer is made: net/http keeps reading, to notice a client that leaves.
	_ = http.NewResponseController(c.Writer).SetReadDeadline(time.Time{})
	return body, nil
}

func checkMedia(h http.Header) error {
	if e := h.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return errMediaType
	}
	if h.Get("Content-Type") == "" {
		return nil
	}
	media, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil || media != "application/json" || params["charset"] != "" && !strings.EqualFold(params["charset"], "utf-8") {
		return errMediaType
	}
	return nil
}
