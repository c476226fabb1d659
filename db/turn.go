package db

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"exportd/export"
)

// turnAsk is what a worker asks between two attempts: to end the claim that it had, or for the next one. One of the two is set.
type turnAsk struct {
	done  *doneAsk
	claim *claimAsk
}

type turnAnswer struct {
	done  bool
	claim claimAnswer
}

// chunk is the chunk that is asked about; its texts, one after the other, say where it comes in the order of locking.
func (a turnAsk) chunk() export.Ref {
	if a.done != nil {
		return a.done.claim.Ref
	}
	return a.claim.ref
}

// few requests of a kind, whatever waits when chunks are large or a worker is alone, take a plain statement each, those of both kinds in one transaction and
// one round trip: half the server's time of the statements for groups, which pay from about five requests on. The plain statements do what nearly
// all requests want; the rest goes to those for groups as if nothing had happened.
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
const paidOneSQL = `delete from dispatch where job_id = $1 and chunk_key = $2 and exists (
	select from job_chunk c where c.job_id = $1 and c.chunk_key = $2 and c.claim_id = $3::uuid and c.status = $4)`

func (s *Store) turnAll(ctx context.Context, asks []turnAsk) ([]turnAnswer, error) {
	answers := make([]turnAnswer, len(asks))
	var dones, claims []int // ordinals
	for i, a := range asks {
		if a.done != nil {
			dones = append(dones, i)
		} else {
			claims = append(claims, i)
		}
	}
	if max(len(dones), len(claims)) <= s.few {
		left, err := s.turnFew(ctx, asks, answers)
		if err != nil || len(left) == 0 {
			return answers, err
		}
		answered := func(i int) bool { return !slices.Contains(left, i) }
		dones, claims = slices.DeleteFunc(dones, answered), slices.DeleteFunc(claims, answered)
	}
	var both sync.WaitGroup
	var doneErr, claimErr error
	if len(dones) > 0 {
		both.Go(func() { doneErr = s.doneMany(ctx, asks, dones, answers) })
	}
	if len(claims) > 0 {
		both.Go(func() { claimErr = s.claimMany(ctx, asks, claims, answers) })
	}
	both.Wait()
	return answers, cmp.Or(doneErr, claimErr)
}

// turnFew settles the claims that are current and claims the chunks that wait, and leaves the others without an answer. It locks in the order that holds
// everywhere, chunks, debts, files, each by their keys, so that nobody waits in a ring.
func (s *Store) turnFew(ctx context.Context, asks []turnAsk, answers []turnAnswer) (left []int, err error) {
	order := make([]int, len(asks))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := asks[a].chunk(), asks[b].chunk()
		return cmp.Or(cmp.Compare(x.JobID, y.JobID), cmp.Compare(x.ChunkKey(), y.ChunkKey()))
	})
	var b pgx.Batch
	var started []string
	for _, i := range order {
		if asks[i].done != nil {
			queueDone(&b, *asks[i].done, &answers[i].done)
		} else {
			s.queueClaim(&b, *asks[i].claim, func(c *export.Claim, first bool) {
				answers[i].claim.claim = c
				if first {
					started = append(started, c.JobID)
				}
			})
		}
	}
	var files []int
	for _, i := range order {
		claimID, state := "", export.Done
		if a := asks[i].done; a != nil {
			claimID = a.claim.ID
			if by, _ := a.madeBy(); by != nil {
				files = append(files, i)
			}
		} else {
			claimID, state = asks[i].claim.claimID, export.Running
		}
		b.Queue(paidOneSQL, asks[i].chunk().JobID, asks[i].chunk().ChunkKey(), claimID, state)
	}
	slices.SortStableFunc(files, func(x, y int) int { return cmp.Compare(asks[x].done.file.ObjectKey, asks[y].done.file.ObjectKey) })
	for _, i := range files {
		c := asks[i].done.claim
		by, at := asks[i].done.madeBy()
		b.Queue(cachedOneSQL, c.JobID, c.ChunkKey(), c.ID, s.Bucket, s.Function, by, at)
	}
	if err := s.pool.SendBatch(ctx, &b).Close(); err != nil {
		return nil, err
	}
	s.begun(ctx, started)
	for i, a := range answers {
		if !a.done && a.claim.claim == nil {
			left = append(left, i)
		}
	}
	return left, nil
}

func queueDone(b *pgx.Batch, a doneAsk, met *bool) {
	c, f := a.claim, a.file
	b.Queue(doneOneSQL, c.JobID, c.ChunkKey(), c.ID, f.ObjectKey, f.Rows, f.Bytes, f.SHA256, f.ETag, a.reused).Exec(func(tag pgconn.CommandTag) error {
		*met = tag.RowsAffected() == 1
		return nil
	})
}

// queueClaim tells taken of the claim, if it is given, and whether it is the first of its job.
func (s *Store) queueClaim(b *pgx.Batch, a claimAsk, taken func(c *export.Claim, first bool)) {
	b.Queue(claimOneSQL, a.ref.JobID, a.ref.ChunkKey(), a.claimID, s.Worker, s.Lease, s.objectKey(a.ref, export.None), s.Bucket, s.Function).Query(func(rows pgx.Rows) error {
		c := &export.Claim{ID: a.claimID, Ref: a.ref}
		var first bool
		var recorded recordedRow
		j := &c.Job
		targets := append([]any{&c.Attempt, &c.StartedAt, &j.CreatedAt, &j.Compression, &j.Reuse, &j.RequestID, &j.Traceparent, &first}, recorded.targets()...)
		_, err := pgx.ForEachRow(rows, targets, func() error {
			c.ObjectKey, c.Recorded = s.objectKey(a.ref, j.Compression), recorded.file()
			taken(c, first)
			return nil
		})
		return err
	})
}

// madeBy is the claim that made the file, as far as it is known.
func (a doneAsk) madeBy() (claimID *string, started *time.Time) {
	if a.file.ClaimID == "" || a.file.ClaimStartedAt.IsZero() {
		return nil, nil
	}
	return &a.file.ClaimID, &a.file.ClaimStartedAt
}
