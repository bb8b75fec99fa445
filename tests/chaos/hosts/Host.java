// SPDX-License-Identifier: Apache-2.0
// A program in Java that talks to another like it, while its virtual machine does what it does with signals: makes
// NullPointerException and StackOverflowError of SIGSEGV, brings its threads to safepoints, collects.
//
//     Host server|client ADDRESS PORT ROUNDS
//
// Prints "done" and what was done beside; ends with 0 when all is well.
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;

public final class Host {
    // host_jni.c, over end.h
    private static native long open(String address);

    private static native int meet(long end, String address, int port, boolean listens);

    private static native int first(long end, long number);

    private static native int second(long end, long number);

    private static native int close(long end);

    // Writes from memory that is gone, and answers 0 if that is an error of the request and of nothing else.
    private static native int loseMemory(String address);

    // Rounds between two ends of this process in a thread that is not of Java's and is attached for the time; each
    // calls back.
    private static native int roundsInNativeThread(String address, long rounds);

    private static final AtomicLong nulls = new AtomicLong();
    private static final AtomicLong overflows = new AtomicLong();
    private static final AtomicLong losses = new AtomicLong();
    private static final AtomicLong callbacks = new AtomicLong();
    private static volatile boolean stops;

    private static final class Box {
        int content = 1;
        Box next;
    }

    private static void fail(String what, int code) {
        System.out.println("WRONG " + what + ": " + code);
        System.out.flush();
        Runtime.getRuntime().halt(1);
    }

    private static void check(int code, String what) {
        if (code != 0) {
            fail(what, code);
        }
    }

    // Called from a native thread.
    private static void onRound(long number) {
        callbacks.incrementAndGet();
        follow(new Box());
    }

    private static int follow(Box box) {
        try {
            return box.next.content;
        } catch (NullPointerException expected) {
            nulls.incrementAndGet();
            return 0;
        }
    }

    private static int descend(int depth) {
        return descend(depth + 1) + 1;
    }

    private static void followNulls() {
        // Compiled, it follows pointers without looking, and goes by the fault.
        for (int i = 0; !stops; i++) {
            Box box = new Box();
            box.next = i % 1024 == 1023 ? null : new Box();
            follow(box);
        }
    }

    private static void overflow() {
        while (!stops) {
            try {
                descend(0);
            } catch (StackOverflowError expected) {
                overflows.incrementAndGet();
            }
        }
    }

    private static void collect() {
        while (!stops) {
            List<byte[]> much = new ArrayList<>();
            for (int i = 0; i < 2000; i++) {
                much.add(new byte[10000]);
            }
            System.gc();
        }
    }

    private static void loseAgainAndAgain(String address) {
        while (!stops) {
            check(loseMemory(address), "memory that is gone");
            losses.incrementAndGet();
        }
    }

    private static void callBackAgainAndAgain(String address) {
        while (!stops) {
            check(roundsInNativeThread(address, 20), "rounds in a native thread");
        }
    }

    private static Thread beside(Runnable body) {
        Thread thread = new Thread(null, body, "beside", 256 << 10);
        thread.start();
        return thread;
    }

    public static void main(String[] arguments) throws InterruptedException {
        System.loadLibrary("host_jni");
        boolean serves = arguments[0].equals("server");
        String address = arguments[1];
        long rounds = Long.parseLong(arguments[3]);
        long end = open(address);
        if (end == 0) {
            fail("an end", 0);
        }
        check(meet(end, address, Integer.parseInt(arguments[2]), serves), "meeting");
        List<Thread> threads = new ArrayList<>();
        threads.add(beside(Host::followNulls));
        threads.add(beside(Host::overflow));
        threads.add(beside(Host::collect));
        threads.add(beside(() -> loseAgainAndAgain(address)));
        threads.add(beside(() -> callBackAgainAndAgain(address)));
        for (long i = 0; i < rounds; i++) {
            check(serves ? second(end, i) : first(end, i), "a round");
        }
        // Both sides have enough of everything before one ends.
        while (nulls.get() < 1000 || overflows.get() < 3 || losses.get() < 3 || callbacks.get() < 40) {
            Thread.sleep(1);
        }
        stops = true;
        for (Thread thread : threads) {
            thread.join();
        }
        check(close(end), "closing");
        System.out.println("done: " + rounds + " rounds, " + nulls + " null pointers, " + overflows + " stack overflows, "
                + callbacks + " calls from native threads, " + losses + " times lost memory");
    }
}
