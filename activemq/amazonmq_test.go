package activemq_test

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
)

// permitted is what the Amazon MQ developer guide lists in "Elements, child collection elements, and their child elements permitted" and "Elements and their attributes permitted", as far as
// brokers like ours could want it. A line is an element: its attributes; behind the arrow what may stand in it. Where a collection has the name of its one child, as Spring's XML has it, the
// line is that of both.
const permitted = `
broker: advisorySupport persistent populateJMSXUserID schedulerSupport timeBeforePurgeTempDestinations useAuthenticatedPrincipalForJMSXUserID useMirroredQueues useVirtualTopics schedulePeriodForDestinationPurge maxPurgedDestinationsPerSweep -> destinationInterceptors destinationPolicy destinations networkConnectors persistenceAdapter plugins systemUsage
destinations: -> queue tempQueue tempTopic topic
queue: DLQ physicalName
topic: DLQ physicalName
destinationPolicy: -> policyMap
policyMap: -> policyEntries defaultEntry
policyEntries: -> policyEntry
policyEntry: advisoryForConsumed advisoryForDelivery advisoryForSlowConsumers advisoryWhenFull allConsumersExclusiveByDefault consumersBeforeDispatchStarts cursorMemoryHighWaterMark enableAudit expireMessagesPeriod gcInactiveDestinations inactiveTimeoutBeforeGC lazyDispatch maxAuditDepth maxBrowsePageSize maxDestinations maxExpirePageSize maxPageSize maxProducersToAudit maxQueueAuditDepth memoryLimit minimumMessageSize optimizedDispatch persistJMSRedelivered prioritizedMessages producerFlowControl queue queueBrowserPrefetch queuePrefetch reduceMemoryFootprint sendFailIfNoSpace sendFailIfNoSpaceAfterTimeout storeUsageHighWaterMark strictOrderDispatch tempQueue tempTopic timeBeforeDispatchStarts topic topicPrefetch useCache useConsumerPriority usePrefetchExtension -> deadLetterStrategy destination dispatchPolicy messageEvictionStrategy messageGroupMapFactory pendingMessageLimitStrategy pendingQueuePolicy pendingSubscriberPolicy slowConsumerStrategy
deadLetterStrategy: -> discarding individualDeadLetterStrategy sharedDeadLetterStrategy
sharedDeadLetterStrategy: enableAudit expiration maxAuditDepth maxProducersToAudit processExpired processNonPersistent -> deadLetterQueue
individualDeadLetterStrategy: destinationPerDurableSubscriber enableAudit expiration maxAuditDepth maxProducersToAudit processExpired processNonPersistent queuePrefix queueSuffix topicPrefix topicSuffix useQueueForQueueMessages useQueueForTopicMessages
deadLetterQueue: -> queue tempQueue tempTopic topic
persistenceAdapter: -> kahaDB
kahaDB: concurrentStoreAndDispatchQueues journalDiskSyncInterval journalDiskSyncStrategy preallocationStrategy
plugins: -> authorizationPlugin discardingDLQBrokerPlugin forcePersistencyModeBrokerPlugin redeliveryPlugin statisticsBrokerPlugin timeStampingBrokerPlugin
statisticsBrokerPlugin:
authorizationPlugin: -> map
map: -> authorizationMap
authorizationMap: -> authorizationEntries defaultEntry tempDestinationAuthorizationEntry
authorizationEntries: -> authorizationEntry tempDestinationAuthorizationEntry
authorizationEntry: admin queue read tempQueue tempTopic topic write
tempDestinationAuthorizationEntry: admin queue read tempQueue tempTopic topic write -> tempDestinationAuthorizationEntry
`

// elements are the attributes and children of each.
func elements() (attributes, children map[string][]string) {
	attributes, children = map[string][]string{}, map[string][]string{}
	for line := range strings.Lines(strings.TrimSpace(permitted)) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		has, holds, _ := strings.Cut(rest, "->")
		attributes[name], children[name] = strings.Fields(has), strings.Fields(holds)
	}
	return attributes, children
}

// breaches of the subset in a configuration.
func breaches(r io.Reader) (list []string) {
	attributes, children := elements()
	breach := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	var above []string
	for d := xml.NewDecoder(r); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			return append(list, err.Error())
		}
		switch e := token.(type) {
		case xml.StartElement:
			name := e.Name.Local
			if len(above) == 0 && (name != "broker" || e.Name.Space != "http://activemq.apache.org/schema/core") {
				breach("the document is a %s of %q", name, e.Name.Space)
			}
			if len(above) > 0 && !slices.Contains(children[above[len(above)-1]], name) {
				breach("%s may not stand in %s", name, above[len(above)-1])
			}
			for _, a := range e.Attr {
				if a.Name.Local != "xmlns" && !slices.Contains(attributes[name], a.Name.Local) {
					breach("%s may not have %s", name, a.Name.Local)
				}
				if strings.Contains(a.Value, "${") || strings.HasPrefix(a.Value, "#") {
					breach("%s of %s is an expression", a.Name.Local, name)
				}
			}
			above = append(above, name)
		case xml.EndElement:
			above = above[:len(above)-1]
		}
	}
}

func open(t *testing.T, name string) io.Reader {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestAmazonMQTakesAllOfItsConfiguration(t *testing.T) {
	for _, b := range breaches(open(t, "amazonmq.xml")) {
		t.Error(b)
	}
	// What only a broker of one's own takes is found.
	found := strings.Join(breaches(open(t, "activemq.xml")), "\n")
	for _, want := range []string{"beans", "may not have brokerName", "simpleAuthenticationPlugin may not stand in plugins", "transportConnectors may not stand in broker", "is an expression"} {
		if !strings.Contains(found, want) {
			t.Errorf("of activemq.xml %q is not said:\n%s", want, found)
		}
	}
}

// rights of each group, and the queues that are there from the start.
type rights struct {
	Queues []struct {
		Name string `xml:"physicalName,attr"`
	} `xml:"destinations>queue"`
	Entries []entry `xml:"plugins>authorizationPlugin>map>authorizationMap>authorizationEntries>authorizationEntry"`
	Temp    []entry `xml:"plugins>authorizationPlugin>map>authorizationMap>tempDestinationAuthorizationEntry>tempDestinationAuthorizationEntry"`
}

type entry struct {
	Queue string `xml:"queue,attr"`
	Topic string `xml:"topic,attr"`
	Read  string `xml:"read,attr"`
	Write string `xml:"write,attr"`
	Admin string `xml:"admin,attr"`
}

func TestAmazonMQGivesTheRightsOfOurOwnBroker(t *testing.T) {
	var own struct {
		Broker rights `xml:"broker"`
	}
	var amazon rights
	if err := xml.NewDecoder(open(t, "activemq.xml")).Decode(&own); err != nil {
		t.Fatal(err)
	}
	if err := xml.NewDecoder(open(t, "amazonmq.xml")).Decode(&amazon); err != nil {
		t.Fatal(err)
	}
	if len(amazon.Entries) == 0 || len(amazon.Temp) != 1 || len(amazon.Queues) != 2 {
		t.Fatalf("got %+v", amazon)
	}
	for i, e := range amazon.Entries { // the console's group may what admins may
		for _, groups := range []*string{&e.Read, &e.Write, &e.Admin} {
			without := strings.TrimSuffix(*groups, ",activemq-webconsole")
			if strings.Contains(without, "admins") == (without == *groups) {
				t.Errorf("%s%s: the web console and admins differ: %s", e.Queue, e.Topic, *groups)
			}
			*groups = without
		}
		amazon.Entries[i] = e
	}
	if !slices.Equal(own.Broker.Entries, amazon.Entries) || !slices.Equal(own.Broker.Temp, amazon.Temp) || !slices.Equal(own.Broker.Queues, amazon.Queues) {
		t.Errorf("activemq.xml: %+v\namazonmq.xml: %+v", own.Broker, amazon)
	}
}
