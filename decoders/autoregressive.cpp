#include "decoders/autoregressive.h"

#include <ATen/ATen.h>

#include <utility>
#include <vector>

#include "decoders/session.h"

namespace specdec {

Generation AutoregressiveDecoding::generate(const Request& request) {
  Session session(request, target_);
  session.prefill(target_, {});
  const ForwardOptions options{.logits_use = session.logits_use()};
  while (!session.finished()) {
    const Draft forced = session.forced();
    const ForwardResult result = target_.verify(forced, options);
    session.verified();
    target_.commit(chain_path(forced.size()));
    if (forced.proposed() == 0) {
      session.commit_next(result);
    } else {
      session.commit_forced(forced, result);
    }
  }
  session.remember(target_);
  return std::move(session).finish();
}

}  // namespace specdec
