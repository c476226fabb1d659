package demo

import (
	"path/filepath"
	"strings"

	"exportd/broker/embedded"
	s3embedded "exportd/s3out/embedded"
)

const (
	bucket         = "demo"
	brokerUser     = "demo"
	brokerPassword = "demo"
)

func (d *demo) startBroker() error {
	b, err := embedded.Listen("127.0.0.1:0", embedded.Options{User: brokerUser, Password: brokerPassword})
	if err != nil {
		return err
	}
	d.closers = append(d.closers, func() { b.Close() })
	d.env = append(d.env, "EXPORTD_BROKER_URLS="+b.URL(), "EXPORTD_BROKER_USER="+brokerUser, "EXPORTD_BROKER_PASSWORD="+brokerPassword)
	d.say("STOMP broker at %s", b.URL())
	return nil
}

func (d *demo) startStore() error {
	d.files = filepath.Join(d.dir, "files")
	s, err := s3embedded.Listen("127.0.0.1:0", d.files)
	if err != nil {
		return err
	}
	d.closers = append(d.closers, func() { _ = s.Close() }) // what it cannot remove goes with the folder
	d.env = append(d.env, "EXPORTD_S3_ENDPOINT="+s.Endpoint(), "EXPORTD_S3_BUCKET="+bucket, "EXPORTD_S3_CREATE_BUCKET=true",
		"AWS_ACCESS_KEY_ID=demo", "AWS_SECRET_ACCESS_KEY=demo")
	d.say("object store at %s, over the folder %s", s.Endpoint(), d.files)
	return nil
}

// path is where the object store keeps an object.
func (d *demo) path(objectKey string) string {
	return filepath.Join(append([]string{d.files, bucket}, strings.Split(objectKey, "/")...)...)
}
