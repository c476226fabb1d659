// Package localmq runs a private ActiveMQ on this machine: Debian's package, started by a java command line of our own with our
// activemq.xml, on a free port, with its own folder. Tests and the chaos program stop, kill and restart it.
//
// A broker never outlives its program: a small shell process holds the other end of a pipe and kills java (and removes a folder that
// localmq made) as soon as the pipe closes, which it does whatever ends the program.
package localmq

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"exportd/activemq"
)

const home = "/usr/share/activemq"

// Config of a private broker. The zero value is a broker on a free port with a folder that Stop removes.
type Config struct {
	// Dir keeps configuration, log and data. It is kept by Stop, so a later Start with it finds the same messages.
	Dir string
	// Data is the folder of the messages, when it is shared: of two brokers with the same one the second waits until the first is gone.
	Data string
	// Standby makes Start return while the broker still waits for the first one to go; see WaitReady.
	Standby bool
	// Port of stomp://127.0.0.1; 0 takes a free one, which Restart keeps.
	Port int
	// TLS adds a second connector with a certificate for localhost and 127.0.0.1, signed by itself; see Server.TLSURL and CAFile.
	TLS bool
	// Lasting has java compile what it does often as well as it can, as a broker does that runs for days. That takes more CPU in the first minutes than all messages.
	Lasting bool
	// Env is added to the environment of java, for the ${...} of activemq.xml: AMQ_STORE_LIMIT=64 mb.
	Env []string
}

// Server is a private broker. Its methods may be called from one goroutine at a time.
type Server struct {
	cfg     Config
	tlsPort int
	ownDir  bool
	cmd     *exec.Cmd
	exited  chan struct{} // closed when java has ended
}

// Missing says which packages this machine lacks; nil when a broker can be started.
func Missing() error {
	var missing []string
	if _, err := exec.LookPath("java"); err != nil {
		missing = append(missing, "default-jre-headless")
	}
	for file, pkg := range map[string]string{
		home + "/bin/activemq.jar": "activemq", "/usr/share/java/xstream.jar": "libxstream-java", "/usr/share/java/jettison.jar": "libjettison-java",
	} {
		if _, err := os.Stat(file); err != nil {
			missing = append(missing, pkg)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("not installed: apt-get install %s", strings.Join(missing, " "))
	}
	return nil
}

// Start starts a broker and waits until it answers STOMP.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if err := Missing(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg}
	if cfg.Dir == "" {
		dir, err := os.MkdirTemp("", "exportd-activemq-")
		if err != nil {
			return nil, err
		}
		s.cfg.Dir, s.ownDir = dir, true
	}
	if err := s.prepare(ctx); err != nil {
		s.removeDir()
		return nil, err
	}
	if err := s.Restart(ctx); err != nil {
		s.removeDir()
		return nil, err
	}
	return s, nil
}

// prepare writes the folder: configuration, the two libraries that statistics need, the certificate.
func (s *Server) prepare(ctx context.Context) (err error) {
	for _, d := range []string{"conf", "data", "lib"} {
		if err := os.MkdirAll(s.path(d), 0o700); err != nil {
			return err
		}
	}
	for _, jar := range []string{"xstream.jar", "jettison.jar"} {
		b, err := os.ReadFile("/usr/share/java/" + jar)
		if err != nil {
			return err
		}
		if err := os.WriteFile(s.path("lib", jar), b, 0o600); err != nil {
			return err
		}
	}
	if s.cfg.Port == 0 {
		if s.cfg.Port, err = freePort(); err != nil {
			return err
		}
	}
	xml, err := fs.ReadFile(activemq.Files, "activemq.xml")
	if err != nil {
		return err
	}
	if s.cfg.TLS {
		if s.tlsPort, err = freePort(); err != nil {
			return err
		}
		if err := s.makeCertificate(ctx); err != nil {
			return err
		}
		xml = s.withTLS(xml)
	}
	if err := os.WriteFile(s.path("conf", "activemq.xml"), xml, 0o600); err != nil {
		return err
	}
	log, err := fs.ReadFile(activemq.Files, "log4j.properties")
	if err != nil {
		return err
	}
	return os.WriteFile(s.path("conf", "log4j.properties"), log, 0o600)
}

// Restart starts a broker that was stopped or killed, on the same port and data, and waits until it answers STOMP.
func (s *Server) Restart(ctx context.Context) error {
	log, err := os.OpenFile(s.path("activemq.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	dir := s.cfg.Dir
	args := []string{"-Xmx512m", "-XX:+UseSerialGC"}
	if !s.cfg.Lasting {
		args = append(args, "-XX:TieredStopAtLevel=1")
	}
	cmd := exec.Command("java", append(args, "-Dlog4j.configuration=file:"+s.path("conf", "log4j.properties"),
		"-Dactivemq.home="+home, "-Dactivemq.base="+dir, "-Dactivemq.conf="+s.path("conf"), "-Dactivemq.data="+cmp.Or(s.cfg.Data, s.path("data")),
		"-Djava.io.tmpdir="+s.path("data"), "-Djava.awt.headless=true",
		"-jar", home+"/bin/activemq.jar", "start", "xbean:file:"+s.path("conf", "activemq.xml"))...)
	cmd.Env = append(os.Environ(), append(s.cfg.Env, "AMQ_STOMP_PORT="+strconv.Itoa(s.cfg.Port))...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C on the terminal is for the program, which stops the broker itself
	if err := cmd.Start(); err != nil {
		return err
	}
	release, err := s.watch(cmd.Process.Pid)
	if err != nil {
		cmd.Process.Kill()
		cmd.Wait()
		return err
	}
	exited := make(chan struct{})
	go func() {
		cmd.Wait()
		release()
		close(exited)
	}()
	s.cmd, s.exited = cmd, exited
	if s.cfg.Standby {
		return nil
	}
	if err := s.WaitReady(ctx); err != nil {
		s.Kill()
		return fmt.Errorf("%w; the end of its log:\n%s", err, s.logTail())
	}
	return nil
}

// watch starts the shell that outlives this program by the moment it needs to kill java. The returned function ends it once java is gone.
func (s *Server) watch(pid int) (release func(), err error) {
	script := `read gone; if [ "$gone" != yes ]; then kill -9 "$0"; for i in 1 2 3 4 5; do [ -z "$1" ] || { sleep 1; rm -rf "$1"; }; done; fi`
	remove := ""
	if s.ownDir {
		remove = s.cfg.Dir
	}
	sh := exec.Command("sh", "-c", script, strconv.Itoa(pid), remove)
	sh.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := sh.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := sh.Start(); err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() {
		io.WriteString(pipe, "yes\n")
		pipe.Close()
		sh.Wait()
	}), nil
}

// accepts says whether something listens on the port.
func accepts(ctx context.Context, port int) bool {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err == nil {
		c.Close()
	}
	return err == nil
}

// WaitReady returns when the broker answers STOMP, and listens for TLS if it is to.
func (s *Server) WaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	for {
		if greet(ctx, s.Addr()) == nil && (s.tlsPort == 0 || accepts(ctx, s.tlsPort)) {
			return nil
		}
		select {
		case <-s.exited:
			return errors.New("activemq ended at start")
		case <-ctx.Done():
			return fmt.Errorf("activemq does not answer: %w", ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// greet says hello as nobody: any answer means that the broker is up.
func greet(ctx context.Context, addr string) error {
	c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.WriteString(c, "CONNECT\naccept-version:1.2\nhost:localhost\n\n\x00"); err != nil {
		return err
	}
	_, err = c.Read(make([]byte, 1))
	return err
}

// Stop ends the broker cleanly (SIGTERM), or with SIGKILL when ctx ends first, and removes a folder that Start made.
func (s *Server) Stop(ctx context.Context) error {
	if err := s.Halt(ctx); err != nil {
		return err
	}
	return s.removeDir()
}

// Halt ends the broker cleanly and keeps its data for Restart.
func (s *Server) Halt(ctx context.Context) error {
	s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.exited:
	case <-ctx.Done():
		s.Kill()
	}
	return nil
}

// Kill ends the broker with SIGKILL and keeps its data for Restart.
func (s *Server) Kill() {
	s.cmd.Process.Kill()
	<-s.exited
}

// Pause stops the broker in its tracks: it neither answers nor refuses, until Resume. It may be killed meanwhile.
func (s *Server) Pause() error { return s.cmd.Process.Signal(syscall.SIGSTOP) }

// Resume ends a Pause. No error without one, or without a broker.
func (s *Server) Resume() error {
	if err := s.cmd.Process.Signal(syscall.SIGCONT); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// Addr is host:port of the plain connector.
func (s *Server) Addr() string { return "127.0.0.1:" + strconv.Itoa(s.cfg.Port) }

// URL of the plain connector.
func (s *Server) URL() string { return "stomp://" + s.Addr() }

// TLSURL of the TLS connector, when Config.TLS was set; CAFile is what a client must trust.
func (s *Server) TLSURL() string { return "stomp+ssl://localhost:" + strconv.Itoa(s.tlsPort) }

// CAFile is the PEM file of the certificate.
func (s *Server) CAFile() string { return s.path("conf", "ca.pem") }

func (s *Server) path(elem ...string) string {
	return filepath.Join(append([]string{s.cfg.Dir}, elem...)...)
}

func (s *Server) removeDir() error {
	if !s.ownDir {
		return nil
	}
	return os.RemoveAll(s.cfg.Dir)
}

func (s *Server) logTail() []byte {
	b, _ := os.ReadFile(s.path("activemq.log"))
	return bytes.TrimSpace(b[max(0, len(b)-3000):])
}

// freePort is outside the range from which systems take the ports of outgoing connections: those could occupy it while the server is down, and a
// client that dials a dead server could even reach itself.
func freePort() (int, error) {
	for range 100 {
		port := 20_000 + rand.N(12_000)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		return port, l.Close()
	}
	return 0, errors.New("no port is free")
}
