package main

import (
	"reflect"
	"testing"
	"time"
)

func TestAPlanIsAPureFunctionOfItsSeed(t *testing.T) {
	for seed := range uint64(20) {
		if a, b := newPlan(seed, time.Minute), newPlan(seed, time.Minute); !reflect.DeepEqual(a, b) {
			t.Fatalf("seed %d gives two plans:\n%+v\n%+v", seed, a, b)
		}
	}
	if reflect.DeepEqual(newPlan(1, time.Minute).faults, newPlan(2, time.Minute).faults) {
		t.Error("two seeds give one plan")
	}
}

func TestPlansHaveEveryKindOfFaultAndOfJob(t *testing.T) {
	kinds, answers := map[kind]bool{}, map[string]bool{}
	alone := map[int]bool{}
	twins, cancels, redrives, broken, twice := 0, 0, 0, 0, 0
	for seed := range uint64(30) {
		p := newPlan(seed, 2*time.Minute)
		for i, f := range p.faults {
			kinds[f.kind], answers[f.answer] = true, true
			if i > 0 && f.at < p.faults[i-1].at {
				t.Fatalf("seed %d: faults are not in order of time", seed)
			}
		}
		alone[len(p.alone)] = true
		names := map[string]bool{}
		for _, o := range p.orders {
			if names[o.name()] {
				t.Fatalf("seed %d: two orders are called %s", seed, o.name())
			}
			names[o.name()] = true
			twice += count(o.twice)
			cancels += count(o.cancelAfter > 0)
			redrives += count(o.redriveAfter > 0)
			broken += count(o.broken())
			for _, other := range p.orders {
				twins += count(other.n != o.n && other.request.Items[0].Key == o.request.Items[0].Key && other.at-o.at < time.Second)
			}
		}
	}
	for _, s := range shapes() {
		if !kinds[s.kind] {
			t.Errorf("no %q in 30 plans", s.kind)
		}
	}
	for _, list := range answersOf {
		for _, a := range list {
			if !answers[a] {
				t.Errorf("no answer to %q is dropped in 30 plans", a)
			}
		}
	}
	if !alone[0] || !alone[1] || !alone[len(processes)] {
		t.Errorf("of processes without a broker there are only so many in a plan: %v", alone)
	}
	if min(twins, cancels, redrives, broken, twice) == 0 {
		t.Errorf("%d twins, %d cancelled, %d re-driven, %d broken, %d sent twice", twins, cancels, redrives, broken, twice)
	}
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}
