package export

// OutboxMessage is one message owed to the outside (the parking queue, a webhook), written in the transaction that caused it and deleted when
// its receiver confirmed it.
type OutboxMessage struct {
	ID          int64
	Destination string // OutboxParking, or the URL of a webhook
	Tries       int
	Message
}

// OutboxParking is the destination of dead-letter notices.
const OutboxParking = "parking"
