package main

import (
	"context"
	"sync"
	"time"

	"exportd/broker"
	"exportd/consumer"
	"exportd/export"
	"exportd/s3out"
)

// The adapters do not know each other; here the shapes of one are turned into those that another asks for.

// objects is the bucket as the consumer sees it.
type objects struct{ *s3out.Store }

func (o objects) NewUpload(ctx context.Context, opts consumer.UploadOptions) consumer.Upload {
	return upload{o.Store.NewUpload(ctx, s3out.UploadOptions(opts))}
}

func (o objects) Head(ctx context.Context, key string) (consumer.Object, bool, error) {
	info, found, err := o.Store.Head(ctx, key)
	return consumer.Object{Size: info.Size, ETag: info.ETag, Metadata: info.Metadata}, found, err
}

func (o objects) OldUploads(ctx context.Context, prefix string, age time.Duration) (list []consumer.OpenUpload, err error) {
	for u, err := range o.Store.OldUploads(ctx, prefix, age) {
		if err != nil {
			return list, err
		}
		list = append(list, consumer.OpenUpload{Key: u.Key, ID: u.UploadID})
	}
	return list, nil
}

type upload struct{ *s3out.Upload }

func (u upload) Commit(ctx context.Context, ifMatch string, extra map[string]string) (string, error) {
	return u.Upload.Commit(ctx, s3out.Condition{IfMatch: ifMatch}, extra)
}

// intake is the work queue as the consumer sees it.
type intake struct {
	*broker.Subscriber
	out      chan consumer.Delivery
	stop     func()
	stopping chan struct{}
	stopped  chan struct{}
}

func newIntake(s *broker.Subscriber) *intake {
	i := &intake{Subscriber: s, out: make(chan consumer.Delivery), stopping: make(chan struct{}), stopped: make(chan struct{})}
	i.stop = sync.OnceFunc(func() { close(i.stopping) })
	go i.forward()
	return i
}

// forward ends when the subscriber's Run does, or at Drain. A message that it then holds stays without ack, so that the broker gives it to
// another consumer.
func (i *intake) forward() {
	defer close(i.stopped)
	for {
		select {
		case d, ok := <-i.Subscriber.Deliveries():
			if !ok {
				return
			}
			select {
			case i.out <- delivery{d}:
			case <-i.stopping:
				return
			}
		case <-i.stopping:
			return
		}
	}
}

func (i *intake) Deliveries() <-chan consumer.Delivery { return i.out }

func (i *intake) Drain() {
	i.stop()
	<-i.stopped
	i.Subscriber.Drain()
}

type delivery struct{ *broker.Delivery }

func (d delivery) Message() export.Message {
	return export.Message{Body: d.Body, Headers: d.Headers}
}
