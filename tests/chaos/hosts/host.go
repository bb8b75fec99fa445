// SPDX-License-Identifier: Apache-2.0

// A program in Go that talks to another like it, while its runtime does what it does with signals: preempts by
// SIGURG, makes panics of SIGSEGV, collects.
//
//	host server|client ADDRESS PORT ROUNDS
//
// Prints "done" and what was done beside; ends with 0 when all is well.
package main

// #include <stdlib.h>
// #include "chaos/end.h"
import "C"

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const leastPanics = 100

var stops, panics, losses, collections int64

func fail(what string, code C.int) {
	fmt.Printf("WRONG %s: %d\n", what, int(code))
	os.Exit(1)
}

func check(code C.int, what string) {
	if code != 0 {
		fail(what, code)
	}
}

type linked struct {
	next    *linked
	content [1000]byte
}

// A nil pointer that the compiler does not see, followed on a goroutine's own small stack.
func follow(from *linked) (recovered bool) {
	defer func() { recovered = recover() != nil }()
	return from.next.content[500] == 1
}

func panicAndRecover() {
	for atomic.LoadInt64(&stops) == 0 {
		if !follow(&linked{}) {
			fail("a nil pointer was followed", 0)
		}
		atomic.AddInt64(&panics, 1)
		time.Sleep(100 * time.Microsecond)
	}
}

// Deep in a stack that grows, so that the runtime copies it.
func deep(depth int) int {
	var room [128]byte
	room[depth%128] = 1
	if depth == 0 {
		if !follow(&linked{}) {
			fail("a nil pointer was followed", 0)
		}
		return 0
	}
	return deep(depth-1) + int(room[depth%128])
}

func allocate() {
	for atomic.LoadInt64(&stops) == 0 {
		var list *linked
		for i := 0; i < 2000; i++ {
			list = &linked{next: list}
		}
		deep(1000)
		runtime.GC()
		atomic.AddInt64(&collections, 1)
	}
}

// Calls nothing, so that only a signal stops it.
func spin() {
	for sum := uint64(1); atomic.LoadInt64(&stops) == 0; {
		for i := uint64(0); i < 50_000_000; i++ {
			sum = sum*i + 1
		}
		if sum == 12345 {
			fmt.Println(sum)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Registered memory goes while it is registered: an error, and no fault of the process.
func loseMemory(address *C.char) {
	for atomic.LoadInt64(&stops) == 0 {
		first, second := C.end_open(address, C.kEndSpins), C.end_open(address, C.kEndSpins)
		if first == nil || second == nil {
			fail("ends to lose memory by", 0)
		}
		check(C.end_join_each_other(first, second), "joining")
		lost := C.end_memory_to_lose(4096)
		if code := C.end_write_from(first, lost, 4096, 1); code != C.int(syscall.ECONNRESET) {
			fail("writing from memory that is gone", code)
		}
		check(C.end_close(first), "closing")
		check(C.end_close(second), "closing")
		atomic.AddInt64(&losses, 1)
		time.Sleep(10 * time.Millisecond)
	}
}

func main() {
	serves := C.int(0)
	if os.Args[1] == "server" {
		serves = 1
	}
	address := C.CString(os.Args[2])
	port, _ := strconv.Atoi(os.Args[3])
	rounds, _ := strconv.Atoi(os.Args[4])

	end := C.end_open(address, C.kEndSleeps)
	if end == nil {
		fail("an end", 0)
	}
	check(C.end_meet(end, address, C.int(port), serves), "meeting")
	var beside sync.WaitGroup
	for _, body := range []func(){panicAndRecover, panicAndRecover, allocate, spin, func() { loseMemory(address) }} {
		beside.Add(1)
		go func(body func()) {
			defer beside.Done()
			body()
		}(body)
	}
	for i := 0; i < rounds; i++ {
		code := C.int(0)
		if serves == 1 {
			code = C.end_second(end, C.uint64_t(i))
		} else {
			code = C.end_first(end, C.uint64_t(i))
		}
		check(code, "a round: "+C.GoString(C.end_error(end)))
	}
	// Both sides have enough of everything before one ends.
	for atomic.LoadInt64(&panics) < leastPanics || atomic.LoadInt64(&losses) == 0 || atomic.LoadInt64(&collections) == 0 {
		time.Sleep(time.Millisecond)
	}
	atomic.StoreInt64(&stops, 1)
	beside.Wait()
	check(C.end_close(end), "closing")
	fmt.Printf("done: %d rounds, %d panics, %d collections, %d times lost memory\n", rounds, panics, collections, losses)
}
