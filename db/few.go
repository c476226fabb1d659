package db

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"exportd/export"
)

// few requests, whatever waits when chunks are large or a worker is alone, take a plain statement each, in one transaction and one round trip: half the
// server's time of a statement for a group, which pays from about five requests on. The plain statements do what nearly all requests want; the rest goes
// to the group's statement as if nothing had happened.
const few = 4

// aChunk finds chunk c by the key of row w.
const aChunk = `c.job_id = w.job_id and c.chunk_key = w.chunk_key`

// isRunning says it so that the planner does not think of the index of running chunks, dead entries and all: see announceSQL.
const isRunning = `case c.status when 'RUNNING' then true else false end`

var claimOneSQL = `
update job_chunk c ` + claimSet("$4", "$5") + `
from (select $1::text as job_id, $2::text as chunk_key, $3::uuid as claim_id, $6::text as object_key) w join job j using (job_id) ` + recordedJoin("$7", "$8") + `
where ` + aChunk + ` and j.ending is null and j.outcome is null
  and c.claim_id is distinct from w.claim_id and not exists (select from chunk_attempt a where a.claim_id = w.claim_id)
  and case c.status when 'PENDING' then true when 'RETRY_WAIT' then c.next_retry_at <= now() else false end
returning c.attempts, c.started_at, j.created_at, j.compression, j.reuse, j.request_id, j.traceparent, j.status = 'SUBMITTED', ` + recordedColumns

var announceOneSQL = `
update job_chunk c ` + announceSet("$8") + `
from (select $1::text as job_id, $2::text as chunk_key, $3::uuid as claim_id, $4::text as object_key, $5::bigint as row_count, $6::bigint as byte_count, $7::text as sha256) w
where ` + aChunk + ` and c.claim_id = w.claim_id and ` + isRunning

const doneOneSQL = `
update job_chunk c ` + doneSet + `
from (select $1::text as job_id, $2::text as chunk_key, $3::uuid as claim_id, $4::text as object_key, $5::bigint as row_count, $6::bigint as byte_count, $7::text as sha256,
             $8::text as etag, $9::boolean as reused) w
where ` + aChunk + ` and c.claim_id = w.claim_id and ` + isRunning

// cachedOneSQL records the file of a chunk that is done.
const cachedOneSQL = `
insert into file_cache as f (` + cachedColumns + `)
select $4, s3_object_key, $5, row_count, byte_count, sha256, etag, $6::uuid, $7::timestamptz, job_id
from job_chunk c where job_id = $1 and chunk_key = $2 and claim_id = $3::uuid and case c.status when 'DONE' then true else false end
` + cachedUnlessOlder

// paidOneSQL is paidSQL for one chunk.
func paidOneSQL(status string) string {
	return `delete from dispatch where job_id = $1 and chunk_key = $2 and exists (
		select from job_chunk c where c.job_id = $1 and c.chunk_key = $2 and c.claim_id = $3::uuid and case c.status when '` + status + `' then true else false end)`
}

// inOrder are the ordinals of the requests in the order in which chunks are locked.
func inOrder[T any](asks []T, ref func(T) export.Ref) []int {
	order := make([]int, len(asks))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := ref(asks[a]), ref(asks[b])
		if c := strings.Compare(x.JobID, y.JobID); c != 0 {
			return c
		}
		return strings.Compare(x.ChunkKey(), y.ChunkKey())
	})
	return order
}

// pick are the requests of the ordinals.
func pick[T any](asks []T, ordinals []int) []T {
	picked := make([]T, len(ordinals))
	for n, i := range ordinals {
		picked[n] = asks[i]
	}
	return picked
}

// claimFew answers the requests for chunks that were waiting, and leaves the others without an answer.
func (s *Store) claimFew(ctx context.Context, asks []claimAsk, answers []claimAnswer) (left []int, err error) {
	var b pgx.Batch
	var started []string
	order := inOrder(asks, func(a claimAsk) export.Ref { return a.ref })
	for _, i := range order {
		a := asks[i]
		b.Queue(claimOneSQL, a.ref.JobID, a.ref.ChunkKey(), a.claimID, s.Worker, s.Lease, s.objectKey(a.ref, export.None), s.Bucket, s.Function).Query(func(rows pgx.Rows) error {
			claim := export.Claim{ID: a.claimID, Ref: a.ref}
			var first bool
			var recorded recordedRow
			j := &claim.Job
			targets := append([]any{&claim.Attempt, &claim.StartedAt, &j.CreatedAt, &j.Compression, &j.Reuse, &j.RequestID, &j.Traceparent, &first}, recorded.targets()...)
			tag, err := pgx.ForEachRow(rows, targets, func() error {
				claim.ObjectKey, claim.Recorded = s.objectKey(a.ref, j.Compression), recorded.file()
				answers[i] = claimAnswer{claim: &claim}
				if first {
					started = append(started, a.ref.JobID)
				}
				return nil
			})
			if tag.RowsAffected() == 0 {
				left = append(left, i)
			}
			return err
		})
	}
	for _, i := range order {
		b.Queue(paidOneSQL("RUNNING"), asks[i].ref.JobID, asks[i].ref.ChunkKey(), asks[i].claimID)
	}
	if err := s.pool.SendBatch(ctx, &b).Close(); err != nil {
		return nil, err
	}
	s.begun(ctx, started)
	return left, nil
}

func (s *Store) announceFew(ctx context.Context, asks []announceAsk) ([]bool, error) {
	met := make([]bool, len(asks))
	var b pgx.Batch
	for _, i := range inOrder(asks, func(a announceAsk) export.Ref { return a.claim.Ref }) {
		a := asks[i]
		b.Queue(announceOneSQL, a.claim.JobID, a.claim.ChunkKey(), a.claim.ID, a.key, a.facts.Rows, a.facts.Bytes, a.facts.SHA256, s.Lease).Exec(func(tag pgconn.CommandTag) error {
			met[i] = tag.RowsAffected() == 1
			return nil
		})
	}
	return met, s.pool.SendBatch(ctx, &b).Close()
}

// doneFew settles the claims that are current, and leaves the others. Files are recorded in the order of their keys, as by doneSQL, so that nobody waits in a ring.
func (s *Store) doneFew(ctx context.Context, asks []doneAsk, met []bool) (left []int, err error) {
	var b pgx.Batch
	order := inOrder(asks, func(a doneAsk) export.Ref { return a.claim.Ref })
	for _, i := range order {
		c, f := asks[i].claim, asks[i].file
		b.Queue(doneOneSQL, c.JobID, c.ChunkKey(), c.ID, f.ObjectKey, f.Rows, f.Bytes, f.SHA256, f.ETag, asks[i].reused).Exec(func(tag pgconn.CommandTag) error {
			if met[i] = tag.RowsAffected() == 1; !met[i] {
				left = append(left, i)
			}
			return nil
		})
	}
	for _, i := range slices.SortedStableFunc(slices.Values(order), func(x, y int) int { return strings.Compare(asks[x].file.ObjectKey, asks[y].file.ObjectKey) }) {
		if by, started := asks[i].madeBy(); by != nil {
			c := asks[i].claim
			b.Queue(cachedOneSQL, c.JobID, c.ChunkKey(), c.ID, s.Bucket, s.Function, by, started)
		}
	}
	for _, i := range order {
		b.Queue(paidOneSQL("DONE"), asks[i].claim.JobID, asks[i].claim.ChunkKey(), asks[i].claim.ID)
	}
	return left, s.pool.SendBatch(ctx, &b).Close()
}

// madeBy is the claim that made the file, as far as it is known.
func (a doneAsk) madeBy() (claimID *string, started *time.Time) {
	if a.file.ClaimID == "" || a.file.ClaimStartedAt.IsZero() {
		return nil, nil
	}
	return &a.file.ClaimID, &a.file.ClaimStartedAt
}
