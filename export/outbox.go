package export

import "time"

// OutboxMessage is one message owed to the parking queue, written in the transaction that caused it and deleted when the broker confirmed it.
type OutboxMessage struct {
	ID          int64
	Destination string // OutboxParking
	Tries       int
	Message
}

// OutboxParking is the destination of dead-letter notices. Every other destination in the outbox is the URL of a webhook.
const OutboxParking = "parking"

// Webhook is an event owed to a receiver: a job has ended. It is written in the transaction that ends the job, and deleted when the receiver took it, or
// will not be told any more.
type Webhook struct {
	ID        int64
	EventID   string // the same with every try
	URL       string
	Host      string // that of the URL, with its port: who is slow there holds up nobody elsewhere
	Tries     int    // this one included
	Age       time.Duration
	Job       Job // as it was when it ended
	RequestID string
}
