// SPDX-License-Identifier: Apache-2.0
// The native part of Host.java: calls verbs.
#include <errno.h>
#include <jni.h>
#include <pthread.h>
#include <stdint.h>

#include "chaos/end.h"

enum { kLostBytes = 4096 };

static struct end* end_of(jlong handle) {
  return (struct end*)(uintptr_t)handle;
}

static struct end* open_at(JNIEnv* java, jstring address, enum end_wait wait) {
  const char* text = (*java)->GetStringUTFChars(java, address, NULL);
  struct end* end = end_open(text, wait);
  (*java)->ReleaseStringUTFChars(java, address, text);
  return end;
}

static int open_pair(JNIEnv* java, jstring address, struct end* pair[2]) {
  pair[0] = open_at(java, address, kEndSpins);
  pair[1] = open_at(java, address, kEndSpins);
  return pair[0] == NULL || pair[1] == NULL ? errno : end_join_each_other(pair[0], pair[1]);
}

static int close_pair(struct end* pair[2]) {
  const int first = pair[0] != NULL ? end_close(pair[0]) : 0;
  const int second = pair[1] != NULL ? end_close(pair[1]) : 0;
  return first != 0 ? first : second;
}

JNIEXPORT jlong JNICALL Java_Host_open(JNIEnv* java, jclass self, jstring address) {
  (void)self;
  return (jlong)(uintptr_t)open_at(java, address, kEndSleeps);
}

JNIEXPORT jint JNICALL Java_Host_meet(JNIEnv* java, jclass self, jlong end, jstring address, jint port,
                                      jboolean listens) {
  (void)self;
  const char* text = (*java)->GetStringUTFChars(java, address, NULL);
  const int error = end_meet(end_of(end), text, port, listens);
  (*java)->ReleaseStringUTFChars(java, address, text);
  return error;
}

JNIEXPORT jint JNICALL Java_Host_first(JNIEnv* java, jclass self, jlong end, jlong number) {
  (void)java;
  (void)self;
  return end_first(end_of(end), (uint64_t)number);
}

JNIEXPORT jint JNICALL Java_Host_second(JNIEnv* java, jclass self, jlong end, jlong number) {
  (void)java;
  (void)self;
  return end_second(end_of(end), (uint64_t)number);
}

JNIEXPORT jint JNICALL Java_Host_close(JNIEnv* java, jclass self, jlong end) {
  (void)java;
  (void)self;
  return end_close(end_of(end));
}

JNIEXPORT jint JNICALL Java_Host_loseMemory(JNIEnv* java, jclass self, jstring address) {
  struct end* pair[2];
  (void)self;
  int error = open_pair(java, address, pair);
  if (error == 0) {
    error = end_write_from(pair[0], end_memory_to_lose(kLostBytes), kLostBytes, 1);
    error = error == ECONNRESET ? 0 : error != 0 ? error : EINVAL;
  }
  const int closed = close_pair(pair);
  return error != 0 ? error : closed;
}

struct work {
  JavaVM* machine;
  jclass host;
  struct end* pair[2];
  jlong rounds;
  int error;
};

static void* run(void* argument) {
  struct work* work = argument;
  JNIEnv* java = NULL;
  if ((*work->machine)->AttachCurrentThread(work->machine, (void**)&java, NULL) != JNI_OK) {
    work->error = EAGAIN;
    return NULL;
  }
  jmethodID on_round = (*java)->GetStaticMethodID(java, work->host, "onRound", "(J)V");
  for (jlong i = 0; i < work->rounds && work->error == 0; ++i) {
    work->error = end_both(work->pair[0], work->pair[1], (uint64_t)i);
    (*java)->CallStaticVoidMethod(java, work->host, on_round, i);
  }
  (*work->machine)->DetachCurrentThread(work->machine);
  return NULL;
}

JNIEXPORT jint JNICALL Java_Host_roundsInNativeThread(JNIEnv* java, jclass self, jstring address,
                                                      jlong rounds) {
  struct work work = {.host = (*java)->NewGlobalRef(java, self), .rounds = rounds};
  pthread_t thread;
  (*java)->GetJavaVM(java, &work.machine);
  work.error = open_pair(java, address, work.pair);
  if (work.error == 0) work.error = pthread_create(&thread, NULL, run, &work);
  if (work.error == 0) pthread_join(thread, NULL);
  (*java)->DeleteGlobalRef(java, work.host);
  const int closed = close_pair(work.pair);
  return work.error != 0 ? work.error : closed;
}
