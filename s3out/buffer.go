package s3out

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash"
	"hash/crc32"
	"io"
	"sync"
	"sync/atomic"
)

// blockSize is what a chunk of a few bytes costs in memory.
const blockSize = 64 << 10

type block [blockSize]byte

var blocks = sync.Pool{New: func() any { return new(block) }}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// part holds the bytes of one PutObject or UploadPart until the store has accepted them.
type part struct {
	blocks []*block
	size   int64
	summed int64 // bytes that went into the checksums
	crc    uint32
}

func newPart(content []byte) *part {
	p, sha := new(part), sha256.New()
	p.write(content, int64(len(content)), sha)
	p.sum(sha)
	return p
}

// write takes bytes of b until the part holds limit of them. Every full block goes into the part's CRC32C and into sha.
func (p *part) write(b []byte, limit int64, sha hash.Hash) (n int) {
	for len(b) > 0 && p.size < limit {
		at := int(p.size % blockSize)
		if at == 0 {
			p.blocks = append(p.blocks, blocks.Get().(*block))
		}
		end := int(min(blockSize, int64(at)+limit-p.size))
		c := copy(p.blocks[len(p.blocks)-1][at:end], b)
		b, n, p.size = b[c:], n+c, p.size+int64(c)
		if p.size%blockSize == 0 {
			p.sum(sha)
		}
	}
	return n
}

// sum brings the checksums up to date; only the last block can be behind.
func (p *part) sum(sha hash.Hash) {
	if p.summed == p.size {
		return
	}
	from := p.summed % blockSize
	b := p.blocks[len(p.blocks)-1][from : from+p.size-p.summed]
	sha.Write(b)
	p.crc = crc32.Update(p.crc, castagnoli, b)
	p.summed = p.size
}

// checksum is the value of x-amz-checksum-crc32c.
func (p *part) checksum() string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, p.crc))
}

// release gives the blocks back. No request may read the part any more.
func (p *part) release() {
	for _, b := range p.blocks {
		blocks.Put(b)
	}
	*p = part{}
}

// body reads a part, from the start again after a Seek. It has no WriteTo on purpose: the SDK holds a lock during it, so that a cancelled
// request would end only when the stalled connection does. moved follows the position.
type body struct {
	part  *part
	at    int64
	moved *atomic.Int64
}

func (b *body) Read(p []byte) (int, error) {
	if b.at >= b.part.size {
		return 0, io.EOF
	}
	from := b.at % blockSize
	n := copy(p, b.part.blocks[b.at/blockSize][from:min(blockSize, from+b.part.size-b.at)])
	b.move(b.at + int64(n))
	return n, nil
}

func (b *body) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += b.at
	case io.SeekEnd:
		offset += b.part.size
	}
	if offset < 0 || offset > b.part.size {
		return 0, errors.New("seek outside of the part")
	}
	b.move(offset)
	return offset, nil
}

// Len spares the SDK two seeks.
func (b *body) Len() int { return int(b.part.size - b.at) }

func (b *body) move(to int64) {
	b.moved.Add(to - b.at)
	b.at = to
}
