package embedded

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/go-stomp/stomp/v3/frame"
)

const statisticsPrefix = "/queue/ActiveMQ.Statistics.Destination."

// statistics answers as ActiveMQ's statistics plugin does with transformation:jms-map-json. A queue that does not exist gets no answer; a name that ends in > asks
// for all that begin with the rest.
func (s *session) statistics(name, replyTo string) error {
	reply, err := s.broker.find(s, replyTo)
	if err != nil {
		return err
	}
	var names []string
	for n := range s.broker.queues {
		if prefix, all := strings.CutSuffix(name, ">"); n == name || all && strings.HasPrefix(n, prefix) {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	for _, n := range names {
		s.broker.enqueue(reply, &message{body: s.broker.queues[n].report(), headers: frame.NewHeader("type", "Advisory", "transformation", "jms-map-json")})
	}
	return nil
}

func (q *queue) report() []byte {
	held, inFlight := 0, 0
	for _, sub := range q.subs {
		held += sub.held.Len()
		inFlight += sub.inFlight
	}
	type entry map[string]any
	var doc struct {
		Map struct {
			Entry []entry `json:"entry"`
		} `json:"map"`
	}
	doc.Map.Entry = []entry{
		{"string": []string{"destinationName", "queue://" + q.name}},
		{"string": "size", "long": q.ready.Len() + held},
		{"string": "inflightCount", "long": inFlight},
		{"string": "consumerCount", "long": len(q.subs)},
		{"string": "enqueueCount", "long": q.enqueued},
		{"string": "dequeueCount", "long": q.dequeued},
	}
	b, _ := json.Marshal(doc) // strings and numbers only
	return b
}
