#include "core/layer_reads.h"

namespace specdec {

LayerReads operator-(const LayerReads& now, const LayerReads& before) {
  return {.bytes = now.bytes - before.bytes,
          .layers = now.layers - before.layers,
          .ready = now.ready - before.ready,
          .wait_seconds = now.wait_seconds - before.wait_seconds};
}

}  // namespace specdec
