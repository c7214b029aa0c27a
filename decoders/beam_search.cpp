#include "decoders/beam_search.h"

#include <ATen/ATen.h>

#include <utility>
#include <vector>

#include "core/prefix_store.h"
#include "decoders/beam_rows.h"

namespace specdec {

BeamSearchDecoding::BeamSearchDecoding(LanguageModel& target, const BeamOptions& options)
    : target_(target), options_(options) {
  options_.validate();
}

Generation BeamSearchDecoding::generate(const Request& request) {
  BeamSession session(request, target_, options_);
  const ForwardResult prompt = prefill_with(request.prefixes, target_, request.prompt);
  session.advance(std::vector<Tensor>{prompt.logits.select(0, 0).cpu()});
  session.prefilled();
  BeamRows rows(target_);
  while (!session.finished()) {
    std::vector<BeamRows::Branch> branches;
    std::vector<Token> newest;
    for (const Beam& beam : session.beams()) {
      branches.push_back({beam.parent, std::ssize(beam.tokens) - 1});
      newest.push_back(beam.tokens.back());
    }
    rows.branch(branches);
    // Reading the logits back waits for the device, so it belongs to the forward's time.
    const Tensor logits = target_.decode_get_logits(newest, rows.names()).cpu();
    session.verified();
    session.advance(logits.unbind());
    session.end_step({.committed = 1});
  }
  return std::move(session).finish();
}

}  // namespace specdec
