#include "decoders/autoregressive.h"

#include <ATen/ATen.h>

#include <utility>
#include <vector>

#include "decoders/session.h"

namespace specdec {

Generation AutoregressiveDecoding::generate(const Request& request) {
  Session session(request, target_);
  session.commit_prefill(target_.prefill_get_last_logits(request.prompt));
  while (!session.finished()) {
    const Draft certain = session.certain();
    // Reading the logits back waits for the device, so it belongs to the forward's time.
    if (certain.proposed() == 0) {
      const Tensor logits = target_.decode_get_logits(session.committed().last(1)).cpu();
      session.verified();
      session.commit_next(logits.select(0, 0));
      continue;
    }
    const Tensor logits = target_.verify_get_logits(certain).cpu();
    session.verified();
    target_.commit(chain_path(certain.size()));
    session.commit_certain(certain, logits);
  }
  return std::move(session).finish();
}

}  // namespace specdec
