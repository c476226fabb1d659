package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/go-stomp/stomp/v3"

	"exportd/export"
)

const (
	inspectTimeout = 10 * time.Second
	// A broker without the statistics plugin, or a queue that does not exist, gives no answer. A cold ActiveMQ takes seconds for its first one.
	statisticsWait = 4 * time.Second
	// purgeIdle: a queue that yields nothing for so long is empty.
	purgeIdle = time.Second
	purgeMost = time.Minute
)

// QueueDepth is what the broker says of a queue. Without Known the numbers mean nothing, and Reason says why.
type QueueDepth struct {
	Queue               string
	Known               bool
	Reason              string
	Messages            int64 // in the queue, those in flight included
	InFlight, Consumers int64
	Enqueued, Dequeued  int64 // since the broker's start
}

// Depth asks for the depth of queues. It answers for each of them, in order, and never fails: what cannot be known is said to be unknown.
// The connection is used for nothing else, because an ActiveMQ without xstream breaks it.
func Depth(ctx context.Context, cfg Config, queues ...string) []QueueDepth {
	depths := make([]QueueDepth, len(queues))
	for i, q := range queues {
		depths[i] = QueueDepth{Queue: q, Reason: "the broker gave no statistics for this queue"}
	}
	if err := readDepths(ctx, cfg, depths); err != nil {
		for i := range depths {
			if !depths[i].Known {
				depths[i].Reason = err.Error()
			}
		}
	}
	return depths
}

func readDepths(ctx context.Context, cfg Config, depths []QueueDepth) error {
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	c, err := inspector(cfg).dial(ctx)
	if err != nil {
		return err
	}
	const answers = "/temp-queue/exportd.statistics"
	sub, err := c.Subscribe(answers, stomp.AckAuto, stomp.SubscribeOpt.Header("transformation", "jms-map-json"))
	if err != nil {
		c.kill()
		return translate(err)
	}
	defer abandon(c, sub)
	for _, d := range depths {
		if err := c.Send("/queue/ActiveMQ.Statistics.Destination."+d.Queue, "", nil, stomp.SendOpt.NoContentLength,
			stomp.SendOpt.Header(stomp.ReplyToHeader, answers)); err != nil {
			return translate(err)
		}
	}
	patience := time.NewTimer(statisticsWait)
	defer patience.Stop()
	for open := len(depths); open > 0; open-- {
		m, err := next(ctx, sub, patience.C)
		if m == nil || err != nil {
			return err
		}
		values, err := parseMap(m.Body)
		if err != nil {
			return fmt.Errorf("the broker's statistics cannot be read: %w", err)
		}
		for i := range depths {
			if d := &depths[i]; "queue://"+d.Queue == values.text["destinationName"] {
				n := values.number
				*d = QueueDepth{Queue: d.Queue, Known: true, Messages: n["size"], InFlight: n["inflightCount"], Consumers: n["consumerCount"],
					Enqueued: n["enqueueCount"], Dequeued: n["dequeueCount"]}
			}
		}
	}
	return nil
}

// next returns nil without an error when patience ends first.
func next(ctx context.Context, sub *stomp.Subscription, patience <-chan time.Time) (*stomp.Message, error) {
	select {
	case m, ok := <-sub.C:
		switch {
		case !ok:
			return nil, errors.New("the broker closed the connection")
		case m.Err != nil:
			return nil, translate(m.Err)
		}
		return m, nil
	case <-patience:
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type mapMessage struct {
	text   map[string]string
	number map[string]int64
}

// parseMap reads ActiveMQ's JSON form of a map: {"map":{"entry":[{"string":"size","long":1},{"string":["name","value"]}]}}.
func parseMap(body []byte) (mapMessage, error) {
	var doc struct {
		Map struct {
			Entry []map[string]json.RawMessage `json:"entry"`
		} `json:"map"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return mapMessage{}, err
	}
	m := mapMessage{map[string]string{}, map[string]int64{}}
	for _, e := range doc.Map.Entry {
		var pair [2]string
		if json.Unmarshal(e["string"], &pair) == nil {
			m.text[pair[0]] = pair[1]
			continue
		}
		var key string
		if json.Unmarshal(e["string"], &key) != nil {
			continue
		}
		for _, kind := range []string{"long", "int"} {
			var n int64
			if json.Unmarshal(e[kind], &n) == nil {
				m.number[key] = n
			}
		}
	}
	return m, nil
}

// Browse returns up to limit messages of a queue without taking them.
func Browse(ctx context.Context, cfg Config, queue string, limit int) ([]export.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	c, err := inspector(cfg).dial(ctx)
	if err != nil {
		return nil, err
	}
	sub, err := c.Subscribe("/queue/"+queue, stomp.AckAuto, stomp.SubscribeOpt.Header("browser", "true"))
	if err != nil {
		c.kill()
		return nil, translate(err)
	}
	defer abandon(c, sub)
	var found []export.Message
	for len(found) < limit {
		m, err := next(ctx, sub, nil)
		if err != nil {
			return found, fmt.Errorf("browsing %s: %w", queue, err)
		}
		if m.Header.Get("browser") == "end" {
			break
		}
		found = append(found, export.Message{Body: m.Body, Headers: headersOf(m.Header)})
	}
	return found, nil
}

// Purge takes the messages out of a queue and returns how many there were. What is in flight at consumers is theirs. While others go on sending there is
// no empty queue: it ends when it has taken as many as there were, or after a minute if the broker does not tell their number.
func Purge(ctx context.Context, cfg Config, queue string) (n int, err error) {
	most := int64(math.MaxInt64)
	if d := Depth(ctx, cfg, queue)[0]; d.Known {
		most = d.Messages
	} else {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, purgeMost)
		defer cancel()
	}
	c, err := inspector(cfg).dial(ctx)
	if err != nil {
		return 0, err
	}
	// What is prefetched and not acked is still there afterwards. Few at a time, see window: notices are larger than work.
	sub, err := c.Subscribe("/queue/"+queue, stomp.AckClientIndividual, stomp.SubscribeOpt.Header("activemq.prefetchSize", "8"))
	if err != nil {
		c.kill()
		return 0, translate(err)
	}
	defer abandon(c, sub)
	idle := time.NewTimer(2 * purgeIdle)
	defer idle.Stop()
	for ; int64(n) < most; n++ {
		m, err := next(ctx, sub, idle.C)
		if err != nil {
			return n, fmt.Errorf("purging %s: %w", queue, err)
		}
		if m == nil {
			break
		}
		if err := c.Ack(m); err != nil {
			return n, fmt.Errorf("purging %s: %w", queue, translate(err))
		}
		idle.Reset(purgeIdle)
	}
	return n, c.barrier(ctx)
}

func inspector(cfg Config) *dialer {
	return &dialer{cfg: cfg, heartBeat: consumeHeartBeat, queued: 1024}
}

// abandon kills the connection and reads what is still under way on sub: go-stomp's goroutines wait for ever to hand it over.
func abandon(c *conn, sub *stomp.Subscription) {
	c.kill()
	go func() {
		giveUp := time.After(goodbyeTimeout)
		for {
			select {
			case _, ok := <-sub.C:
				if !ok {
					return
				}
			case <-giveUp:
				return
			}
		}
	}()
}
