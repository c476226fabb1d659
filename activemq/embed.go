// Package activemq holds the configuration of the ActiveMQ broker, so that programs can start one with it.
package activemq

import "embed"

// Files are activemq.xml and the log4j files beside it.
//
//go:embed activemq.xml *.properties
var Files embed.FS
