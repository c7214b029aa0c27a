#include "decoders/generation_state.h"

#include <ATen/ATen.h>

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/formats/checked_blob.h"
#include "core/formats/json_keys.h"
#include "core/formats/mapped_file.h"
#include "core/formats/strict_json.h"
#include "core/snapshot_error.h"

namespace specdec {
namespace {

constexpr BlobKind kStateKind{
    .magic = "SPECDEC\n", .version = 2, .name = "state of a generation (specdec)"};

constexpr std::pair<const char*, at::ScalarType> kStateDtypes[] = {{"F32", at::kFloat},
                                                                   {"F64", at::kDouble},
                                                                   {"BF16", at::kBFloat16},
                                                                   {"F16", at::kHalf},
                                                                   {"U8", at::kByte}};

const char* dtype_name(at::ScalarType type) {
  for (const auto& [name, known] : kStateDtypes) {
    if (known == type) {
      return name;
    }
  }
  SPECDEC_CHECK(false, "a cache of {} cannot be written", c10::toString(type));
}

std::span<const std::byte> bytes_of_tensor(const Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

nlohmann::json sampling_json(const SamplingParams& sampling) {
  auto bias = nlohmann::json::array();
  for (const auto& [token, summand] : sampling.logit_bias) {
    bias.push_back({token, std::isinf(summand) ? nlohmann::json() : nlohmann::json(summand)});
  }
  return {{"temperature", sampling.temperature},
          {"top_k", sampling.top_k},
          {"top_p", sampling.top_p},
          {"min_p", sampling.min_p},
          {"repetition_penalty", sampling.repetition_penalty},
          {"logit_bias", std::move(bias)}};
}

/// Pairs of token and summand, null for -inf; states of earlier versions have none.
LogitBias read_logit_bias(const JsonKeys& json) {
  LogitBias bias;
  if (!json.has("logit_bias")) {
    return bias;
  }
  for (const auto& pair : json.at("logit_bias")) {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_number_unsigned() ||
        pair[0].get<uint64_t>() > std::numeric_limits<Token>::max() ||
        !(pair[1].is_null() || pair[1].is_number())) {
      json.fail("logit_bias", "is no list of pairs of a token and a number");
    }
    bias[pair[0].get<Token>()] =
        pair[1].is_null() ? -std::numeric_limits<double>::infinity() : pair[1].get<double>();
  }
  return bias;
}

SamplingParams read_sampling(const JsonKeys& json) {
  SamplingParams sampling{.temperature = json.number("temperature"),
                          .top_k = json.integer("top_k"),
                          .top_p = json.number("top_p"),
                          .min_p = json.number("min_p"),
                          .repetition_penalty = json.number("repetition_penalty"),
                          .logit_bias = read_logit_bias(json)};
  sampling.validate();
  return sampling;
}

/// Layers of the cached tokens alone; none without a snapshot.
std::vector<LayerKeyValues> cached_layers(const CachedPrefix& cached) {
  std::vector<LayerKeyValues> layers;
  if (cached.snapshot == nullptr) {
    return layers;
  }
  const auto tokens = std::ssize(cached.tokens);
  const std::vector<LayerKeyValues> all = cached.snapshot->copy();
  layers.reserve(all.size());
  for (const LayerKeyValues& layer : all) {
    layers.push_back({layer.keys.narrow(1, 0, tokens).contiguous(),
                      layer.values.narrow(1, 0, tokens).contiguous()});
  }
  return layers;
}

std::string state_header(const GenerationState& state, const std::vector<LayerKeyValues>& layers) {
  auto shapes = nlohmann::json::array();
  for (const LayerKeyValues& layer : layers) {
    shapes.push_back({{"dtype", dtype_name(layer.keys.scalar_type())},
                      {"kv_heads", layer.keys.size(0)},
                      {"head_dim", layer.keys.size(2)}});
  }
  return nlohmann::json{
      {"model", state.model},
      {"prompt", state.prompt},
      {"output", state.output},
      {"sampling", sampling_json(state.sampling)},
      {"seed", std::to_string(state.seed)},  // 64 bits, which JSON's readers cut
      {"prompt_number", state.prompt_number},
      {"repeat", state.repeat},
      {"grammar", state.grammar},
      {"cache", state.cache},
      {"key", state.cached.key},
      {"cached_tokens", state.cached.tokens.size()},
      {"shortest_cached", state.cached.snapshot ? state.cached.snapshot->shortest_length() : 0},
      {"layers", shapes}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void write_state_to(const GenerationState& state,
                    const std::function<void(std::span<const std::byte>)>& write) {
  const std::vector<LayerKeyValues> layers = cached_layers(state.cached);
  std::vector<std::span<const std::byte>> payload;
  for (const LayerKeyValues& layer : layers) {
    payload.push_back(bytes_of_tensor(layer.keys));
    payload.push_back(bytes_of_tensor(layer.values));
  }
  write_blob(kStateKind, state_header(state, layers), payload, write);
}

int64_t integer_within(const JsonKeys& json, const char* key, int64_t most) {
  const int64_t value = json.integer(key);
  if (value < 0 || value > most) {
    json.fail(key, fmt::format("{} is not within 0 to {}", value, most));
  }
  return value;
}

std::vector<Token> read_tokens(const JsonKeys& json, const char* key) {
  const nlohmann::json& list = json.at(key);
  std::vector<Token> tokens;
  for (const auto& value : list) {
    if (!list.is_array() || !value.is_number_integer() || value.get<int64_t>() < 0 ||
        value.get<int64_t>() > std::numeric_limits<Token>::max()) {
      json.fail(key, "should be a list of token ids");
    }
    tokens.push_back(value.get<Token>());
  }
  return tokens;
}

uint64_t read_seed(const JsonKeys& json) {
  const std::string text = json.text("seed", "");
  constexpr size_t kMostDigits = 20;
  if (text.empty() || text.size() > kMostDigits ||
      text.find_first_not_of("0123456789") != std::string::npos) {
    json.fail("seed", "should be a number as a text");
  }
  errno = 0;
  const uint64_t seed = std::strtoull(text.c_str(), nullptr, 10);
  if (errno != 0) {
    json.fail("seed", "is too large");
  }
  return seed;
}

/// Takes tensors from the payload of a state.
class PayloadReader {
 public:
  explicit PayloadReader(std::span<const std::byte> payload) : left_(payload) {}

  /// [kv_heads, tokens, head_dim].
  Tensor take(const JsonKeys& layer, int64_t tokens) {
    const int64_t heads = layer.positive("kv_heads");
    const int64_t dim = layer.positive("head_dim");
    const at::ScalarType type = dtype(layer);
    const auto size = static_cast<int64_t>(c10::elementSize(type));
    // Each factor is below 2^31 and their product is compared without overflowing.
    const auto left = static_cast<int64_t>(left_.size());
    if (tokens > 0 && (heads > left / size / tokens || dim > left / size / tokens / heads)) {
      layer.fail("kv_heads", "and head_dim are of more bytes than there are");
    }
    const Tensor tensor = at::empty({heads, tokens, dim}, at::TensorOptions().dtype(type));
    const auto bytes = left_.first(tensor.nbytes());
    if (!bytes.empty()) {
      std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
    }
    left_ = left_.subspan(bytes.size());
    return tensor;
  }
  bool done() const { return left_.empty(); }

 private:
  static at::ScalarType dtype(const JsonKeys& layer) {
    const std::string text = layer.text("dtype", "");
    for (const auto& [name, known] : kStateDtypes) {
      if (text == name) {
        return known;
      }
    }
    layer.fail("dtype", "should be F32, F64, BF16, F16 or U8");
  }

  std::span<const std::byte> left_;
};

CachedPrefix read_cached(const JsonKeys& json, std::span<const std::byte> payload,
                         const std::vector<Token>& text, const std::string& file) {
  const int64_t tokens = integer_within(json, "cached_tokens", std::ssize(text));
  const nlohmann::json& shapes = json.at("layers");
  PayloadReader reader(payload);
  std::vector<LayerKeyValues> layers;
  for (const auto& shape : shapes) {
    if (!shapes.is_array() || !shape.is_object()) {
      json.fail("layers", "should be a list of objects");
    }
    const JsonKeys layer(shape, file + ": layers");
    Tensor keys = reader.take(layer, tokens);
    layers.push_back({std::move(keys), reader.take(layer, tokens)});
  }
  if (!reader.done()) {
    json.fail("layers", "are of fewer bytes than there are");
  }
  CachedPrefix cached{.key = json.text("key", ""),
                      .tokens = {text.begin(), text.begin() + tokens},
                      .snapshot = nullptr};
  if (!layers.empty()) {
    cached.snapshot =
        std::make_shared<KvCopies>(std::move(layers), tokens, json.integer("shortest_cached", 0));
  } else if (tokens > 0) {
    json.fail("cached_tokens", "are there, but no layers");
  }
  return cached;
}

GenerationState read_header(const Blob& blob, const std::string& file) {
  const nlohmann::json header = parse_json_object(std::string(blob.header), file);
  const JsonKeys json(header, file);
  constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();
  GenerationState state{
      .model = json.text("model", ""),
      .prompt = read_tokens(json, "prompt"),
      .output = read_tokens(json, "output"),
      .sampling = read_sampling(json.object("sampling")),
      .seed = read_seed(json),
      .prompt_number = static_cast<uint32_t>(integer_within(json, "prompt_number", kMost)),
      .repeat = static_cast<uint32_t>(integer_within(json, "repeat", kMost)),
      .grammar = json.text("grammar", ""),
      .cache = json.text("cache", ""),  // older files have none
      .cached = {}};
  if (state.prompt.empty()) {
    json.fail("prompt", "is empty");
  }
  state.cached = read_cached(json, blob.payload, state.text(), file);
  return state;
}

}  // namespace

std::vector<Token> GenerationState::text() const {
  std::vector<Token> text = prompt;
  text.insert(text.end(), output.begin(), output.end());
  return text;
}

void keep_cache(GenerationState& state, LanguageModel& target) {
  state.cached =
      target.snapshots() == nullptr ? CachedPrefix() : cached_prefix(target, state.text());
}

void check_target(const GenerationState& state, LanguageModel& target) {
  const std::string key = target.snapshots() == nullptr ? "" : target.snapshots()->kv_key();
  if (key != state.cached.key) {
    throw SnapshotModelError(fmt::format(
        "the state is of another model than this one, or of the same with other adapters, dtype, "
        "activations, kv_dtype, device or cache (its format, rotation, codebook, exact_recent, and "
        "what window and compressed keep): it was made with '{}'{} (key {}, here {}). Resume it "
        "with the same model and options",
        state.model, state.cache.empty() ? "" : ", " + state.cache, state.cached.key, key));
  }
}

void write_state(const GenerationState& state, const std::filesystem::path& file) {
  AtomicFile out(file);
  write_state(state, out);
}

void write_state(const GenerationState& state, AtomicFile& file) {
  write_state_to(state, [&file](std::span<const std::byte> bytes) { file.write(bytes); });
  file.commit();
}

std::string state_bytes(const GenerationState& state) {
  std::string all;
  write_state_to(state, [&all](std::span<const std::byte> bytes) {
    all.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  return all;
}

GenerationState read_state(const std::filesystem::path& file) {
  const MappedFile mapped(file);
  return parse_state(mapped.bytes(), file.string());
}

GenerationState parse_state(std::span<const std::byte> bytes, const std::string& file) {
  const Blob blob = parse_blob(kStateKind, bytes, file);
  try {
    return read_header(blob, file);
  } catch (const Error& error) {
    throw SnapshotDamagedError(fmt::format(
        "{} (the file's bytes are as they were written, but not by this program)", error.what()));
  }
}

}  // namespace specdec
