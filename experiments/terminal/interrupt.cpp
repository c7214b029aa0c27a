#include "experiments/terminal/interrupt.h"

#include <csignal>

namespace specdec {
namespace {

// A signal handler can reach nothing but a global.
volatile std::sig_atomic_t interrupted = 0;

using Handler = void (*)(int);
// What SIGINT and SIGTERM did before the guard, and do again at the second signal and after it.
Handler before_interrupt = SIG_DFL;
Handler before_terminate = SIG_DFL;

void note_interrupt(int signal) {
  interrupted = 1;
  std::signal(signal, signal == SIGINT ? before_interrupt : before_terminate);
}

}  // namespace

InterruptGuard::InterruptGuard() {
  interrupted = 0;
  before_interrupt = std::signal(SIGINT, note_interrupt);
  before_terminate = std::signal(SIGTERM, note_interrupt);
}

InterruptGuard::~InterruptGuard() {
  std::signal(SIGINT, before_interrupt);
  std::signal(SIGTERM, before_terminate);
  interrupted = 0;  // what is later interrupted has a guard of its own
}

bool InterruptGuard::is_raised() { return interrupted != 0; }

void InterruptGuard::check() {
  if (is_raised()) {
    throw Interrupted{};
  }
}

}  // namespace specdec
