package db

import (
	"context"
	"net"
	"syscall"

	"github.com/jackc/pgx/v5"
)

// alive is asked of each connection that is taken from a pool. Of one that has ended while it lay there, the farewell is to be read already: a look that waits
// for nothing finds it, and no statement is lost on it, which would cost a chunk an attempt when all is well again. The pools themselves ask only after a
// second of idleness, by a round trip.
func alive(ctx context.Context, c *pgx.Conn) (bool, error) {
	conn := c.PgConn().Conn()
	if t, ok := conn.(interface{ NetConn() net.Conn }); ok { // TLS
		conn = t.NetConn()
	}
	plain, ok := conn.(syscall.Conn)
	if !ok {
		return true, nil
	}
	raw, err := plain.SyscallConn()
	if err != nil {
		return false, nil
	}
	quiet := false
	err = raw.Control(func(fd uintptr) { // not Read, which would wait for a reader that pgx may have left in the background
		_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		quiet = err == syscall.EAGAIN || err == syscall.EINTR
	})
	return err == nil && (quiet || c.Ping(ctx) == nil), nil // what waits may be a harmless word, of a setting that has changed
}
