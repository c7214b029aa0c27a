#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "core/drafting_heads.h"
#include "core/transformer/heads/assistant_head.h"
#include "core/transformer/heads/medusa_head.h"
#include "core/transformer/heads/module_drafts.h"
#include "core/transformer/heads/mtp_head.h"

/// Heads as drafters ask for them. What is returned keeps the model that it calls.
namespace specdec {

/// The first modules of a head, each a model with a cache of its own.
struct MtpModules {
  std::vector<std::unique_ptr<LanguageModel>> models;
  std::shared_ptr<ModuleDrafts> drafts;  ///< of several, which it borrows; nullptr of one
};
/// Makes the first `count` modules of a head. All have the same ops, the options' or the device's
/// own, since a graph holds the launches of all.
MtpModules make_mtp_modules(const std::shared_ptr<const MtpHead>& head, int64_t count,
                            const std::shared_ptr<const TransformerWeights>& target,
                            const KvStoreFactory& store, const TransformerOptions& options = {});

/// Draws nothing for nullptr.
ModuleDrawing drawing_of(const std::shared_ptr<ModuleDrafts>& drafts);
/// Draws on the device where it samples.
MedusaHeads drafting_heads(const std::shared_ptr<MedusaModel>& model);
/// Steps over the kept tokens of the target's row 0; draws on the device where draws_drafts() says
/// so.
AssistantSteps drafting_steps(const std::shared_ptr<AssistantModel>& model);

}  // namespace specdec
