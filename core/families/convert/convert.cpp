#include "core/families/convert/convert.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "core/error.h"
#include "core/families/convert/gguf_entries.h"
#include "core/families/convert/output_folder.h"
#include "core/families/convert/plan_difference.h"
#include "core/families/convert/tensor_encoder.h"
#include "core/families/gemma/config.h"
#include "core/families/gguf/gguf_config.h"
#include "core/families/gguf/gguf_tensors.h"
#include "core/families/llama/config.h"
#include "core/families/model.h"
#include "core/formats/atomic_file.h"
#include "core/formats/safetensors_writer.h"

namespace specdec {
namespace {

constexpr const char* kEmbedding = "model.embed_tokens.weight";
constexpr const char* kHead = "lm_head.weight";
constexpr const char* kFrequencies = "rope_freqs.weight";  ///< in GGUF

bool is_gguf_name(const std::filesystem::path& path) { return path.extension() == ".gguf"; }

bool is_gemma(const ModelDescription& model) { return model.scaled_embedding; }

/// Dtype of the file for values of a dtype; wider ones become float32.
DType written_dtype(at::ScalarType stored) {
  return stored == at::kHalf ? DType::kF16 : stored == at::kBFloat16 ? DType::kBF16 : DType::kF32;
}

std::string hub_dtype_name(DType dtype) {
  return dtype == DType::kF16 ? "float16" : dtype == DType::kBF16 ? "bfloat16" : "float32";
}

/// GGUF holds numbers as float32: 1e-5 comes back as 9.99999974e-6. The shortest number that is the
/// same float32 is the one that was meant.
double meant_number(double value) {
  const auto single = static_cast<float>(value);
  return static_cast<double>(single) == value ? std::stod(fmt::format("{}", single)) : value;
}

void restore_numbers(ModelDescription& model) {
  model.config.rms_norm_eps = meant_number(model.config.rms_norm_eps);
  model.config.final_soft_cap = meant_number(model.config.final_soft_cap);
  for (LayerPlan& layer : model.plan) {
    layer.soft_cap = meant_number(layer.soft_cap);
    layer.rope.theta = meant_number(layer.rope.theta);
    layer.rope.factor = meant_number(layer.rope.factor);
    std::transform(layer.rope.divisors.begin(), layer.rope.divisors.end(),
                   layer.rope.divisors.begin(), meant_number);
  }
}

std::string config_text(const ModelDescription& model, DType dtype, const std::string& where) {
  return is_gemma(model) ? gemma_config_json(model, hub_dtype_name(dtype))
                         : llama_config_json(model, hub_dtype_name(dtype), where);
}

/// general.file_type of a dtype.
int64_t file_type(DType dtype) {
  return dtype == DType::kF16 ? 1 : dtype == DType::kQ80 ? 7 : dtype == DType::kBF16 ? 32 : 0;
}

}  // namespace

ModelConverter::ModelConverter(std::filesystem::path input, std::filesystem::path output,
                               const ConvertOptions& options)
    : input_(std::move(input)),
      output_(std::move(output)),
      updates_(options.updates),
      to_gguf_(is_gguf_name(output_)) {
  check_output_place(input_, output_, to_gguf_, options.replace);
  open_input();
  choose_dtype(options.dtype);
  read_tokenizer(options.tokenizer);
  plan_tensors();
  check_updates();
  check_plan();
  check_room();
}

void ModelConverter::open_input() {
  OpenModel open = open_model(input_);
  model_ = std::move(open.description);
  if (!std::all_of(model_.plan.begin(), model_.plan.end(), is_plain)) {
    throw Error(fmt::format("{}: models of family {} cannot be converted yet; they run as they are",
                            input_.string(), model_.config.family));
  }
  source_ = std::make_unique<TensorSource>(open.tensors, Placement{});
  source_->find_prefix(kEmbedding);
  const std::vector<int64_t> table = {model_.config.vocab_size, model_.config.hidden_size};
  if (model_.config.tie_word_embeddings && source_->has(kHead) &&
      !source_->skip_copy(kHead, kEmbedding, table)) {
    model_.config.tie_word_embeddings = false;  // what the file holds counts, as in load_model
  }
  for (ModelTensor& tensor : model_tensors(model_)) {
    (void)source_->stored_dtype(tensor.name, tensor.shape);
    tensors_.push_back(std::move(tensor));
  }
  source_->check_all_taken();
  const double wanted = !to_gguf_ && is_gemma(model_) ? kGemmaNormOffset : 0.0;
  norm_change_ = model_.norm_offset - wanted;
  if (is_gguf(input_)) {
    restore_numbers(model_);
  }
  summary_.family = model_.config.family;
}

void ModelConverter::choose_dtype(std::optional<DType> wanted) {
  if (!wanted && to_gguf_ == is_gguf(input_) && updates_.empty()) {
    throw ConfigError(fmt::format("{}: is {} already. Say which dtype it should become: --dtype",
                                  input_.string(), to_gguf_ ? "a GGUF file" : "a folder"));
  }
  if (wanted == DType::kQ80 && !to_gguf_) {
    throw ConfigError(
        "int8 (Q8_0) is a format of GGUF files; a folder takes float32, float16 or bfloat16");
  }
  as_stored_ = !wanted;
  const at::ScalarType stored = source_->common_dtype();
  summary_.dtype = wanted.value_or(written_dtype(stored));
  if (as_stored_ && stored == at::kDouble) {
    summary_.notes.emplace_back("float64 values are rounded to float32");
  }
}

void ModelConverter::read_tokenizer(bool wanted) {
  tokenizer_ = wanted ? read_tokenizer_files(input_) : std::nullopt;
  const int64_t pieces =
      tokenizer_ ? std::visit([](const auto& model) { return std::ssize(model.pieces); },
                              tokenizer_->model)
                 : 0;
  if (pieces > model_.config.vocab_size) {  // nothing would read the result
    throw WeightsError(fmt::format(
        "{}: the tokenizer has {} pieces, but the model's vocabulary only {}; it belongs to "
        "another model. Convert it with --no-tokenizer, for token ids only.",
        input_.string(), pieces, model_.config.vocab_size));
  }
}

DType ModelConverter::dtype_of(const ModelTensor& tensor) {
  if (tensor.shape.size() == 1) {
    const bool wide = to_gguf_ || !is_exact(read_whole(tensor), summary_.dtype);
    return wide ? DType::kF32 : summary_.dtype;
  }
  if (as_stored_) {
    return written_dtype(source_->stored_dtype(tensor.name, tensor.shape));
  }
  const bool whole = tensor.shape.back() % block_values(summary_.dtype) == 0;
  return whole ? summary_.dtype : DType::kF16;
}

void ModelConverter::plan_tensors() {
  const bool post_norms = model_.plan.front().post_norms;
  int64_t not_whole = 0;
  for (const ModelTensor& tensor : tensors_) {
    const DType dtype = dtype_of(tensor);
    not_whole += tensor.shape.size() > 1 && dtype != summary_.dtype && !as_stored_ ? 1 : 0;
    layouts_.push_back(
        {to_gguf_ ? gguf_name(tensor.name, post_norms) : tensor.name, dtype, tensor.shape});
    summary_.bytes += layouts_.back().bytes();
  }
  summary_.tensors = static_cast<int64_t>(tensors_.size());
  if (not_whole > 0) {
    summary_.notes.push_back(fmt::format(
        "{} matrices have rows that are no multiple of {}, so {} cannot hold them: they are F16",
        not_whole, block_values(summary_.dtype), dtype_name(summary_.dtype)));
  }
  std::error_code code;
  if (std::filesystem::exists(input_ / "mtp.safetensors", code)) {
    summary_.notes.emplace_back(
        "mtp.safetensors (multi-token prediction) is not converted: copy it yourself");
  }
  if (!tokenizer_) {
    summary_.notes.emplace_back("there is no tokenizer: the result takes token ids only");
  }
}

void ModelConverter::check_updates() const {
  for (const auto& [name, update] : updates_) {
    const std::string weight = name + ".weight";
    if (std::none_of(tensors_.begin(), tensors_.end(),
                     [&](const ModelTensor& tensor) { return tensor.name == weight; })) {
      throw WeightsError(
          fmt::format("{}: has no matrix '{}', which the adapter changes{}. Apply the adapter "
                      "beside the model instead.",
                      input_.string(), weight,
                      weight == kHead ? " (its head is the embedding, which stays)" : ""));
    }
  }
}

void ModelConverter::check_plan() {
  const std::string where = input_.string();
  const ModelDescription read = to_gguf_ ? described_by_gguf() : described_by_config();
  if (const auto other = plan_difference(model_, read)) {
    throw WeightsError(fmt::format(
        "{}: its {} is {}, which {} cannot say: it would be read as {}, another model. It is not "
        "converted.",
        where, other->key, other->wanted,
        to_gguf_ ? fmt::format("a GGUF file of architecture {}", gguf_architecture(model_, where))
                 : fmt::format("a config.json of model_type {}", read.config.family),
        other->found));
  }
}

ModelDescription ModelConverter::described_by_gguf() {
  GgufContent content = written_content(entries(summary_.notes), gguf_layouts(), output_.string());
  const std::vector<float> frequencies = rope_frequencies();
  for (TensorEntry& tensor : content.tensors) {
    if (tensor.name == kFrequencies) {
      tensor.bytes = std::as_bytes(std::span(frequencies));
    }
  }
  return describe_gguf(content);
}

ModelDescription ModelConverter::described_by_config() const {
  const std::string where = (output_ / "config.json").string();
  const std::string text = config_text(model_, summary_.dtype, input_.string());
  return is_gemma(model_) ? parse_gemma_config(text, where) : parse_llama_config(text, where);
}

/// Llama 3's scaling, which is a tensor in GGUF; none for other models.
std::vector<float> ModelConverter::rope_frequencies() const {
  const auto& divisors = model_.plan.front().rope.divisors;
  return {divisors.begin(), divisors.end()};
}

std::vector<TensorLayout> ModelConverter::gguf_layouts() const {
  std::vector<TensorLayout> layouts = layouts_;
  if (const auto size = static_cast<int64_t>(rope_frequencies().size()); size > 0) {
    layouts.insert(layouts.begin(), {.name = kFrequencies, .dtype = DType::kF32, .shape = {size}});
  }
  return layouts;
}

void ModelConverter::check_room() const {
  std::error_code code;
  const auto parent = std::filesystem::absolute(output_).lexically_normal().parent_path();
  const auto space = std::filesystem::space(parent, code);
  if (!code && space.available < summary_.bytes) {
    throw ConfigError(fmt::format("{}: needs {:.1f} MB, but only {:.1f} MB are free there",
                                  output_.string(), static_cast<double>(summary_.bytes) / 1e6,
                                  static_cast<double>(space.available) / 1e6));
  }
}

void ModelConverter::write(const std::function<void(const std::string&)>& on_tensor) {
  to_gguf_ ? write_gguf(on_tensor) : write_folder(on_tensor);
}

at::Tensor ModelConverter::updated(const ModelTensor& tensor, int64_t first,
                                   const at::Tensor& rows) const {
  const auto found = updates_.find(tensor.name.substr(0, tensor.name.rfind('.')));
  return found == updates_.end() ? rows : rows + found->second.rows(first, rows.size(0));
}

at::Tensor ModelConverter::read_whole(const ModelTensor& tensor) {
  at::Tensor values = source_->load(tensor.name, tensor.shape, at::kFloat);
  if (values.dim() == 2) {
    values = updated(tensor, 0, values);
  }
  return tensor.is_norm && norm_change_ != 0.0 ? values + norm_change_ : values;
}

void ModelConverter::write_tensor(const ModelTensor& tensor, DType dtype, const WriteBytes& write) {
  const bool interleaved =
      to_gguf_ && tensor.head_dim > 0 && gguf_architecture(model_, input_.string()) == "llama";
  if (tensor.shape.size() == 1 || interleaved) {
    const at::Tensor values = read_whole(tensor);
    encode_rows(interleaved ? interleaved_rows(values, tensor.head_dim) : values, dtype,
                tensor.name, write);
    return;
  }
  source_->read_rows(tensor.name, tensor.shape, [&](int64_t first, const at::Tensor& rows) {
    encode_rows(updated(tensor, first, rows), dtype, tensor.name, write);
  });
}

GgufEntries ModelConverter::entries(std::vector<std::string>& notes) const {
  GgufEntries all = gguf_entries(model_, input_.string(), notes);
  all.emplace_back("general.name",
                   std::filesystem::absolute(input_).lexically_normal().stem().string());
  all.emplace_back("general.file_type", file_type(summary_.dtype));
  all.emplace_back("general.quantization_version", int64_t{2});
  if (tokenizer_) {
    add_gguf_tokenizer(*tokenizer_, model_.config.vocab_size, input_.string(), all);
  } else {
    all.emplace_back("tokenizer.ggml.model", std::string("no_vocab"));
  }
  std::vector<Token> ends = model_.config.end_ids;
  if (tokenizer_ && tokenizer_->eos) {  // the tokenizer's own comes first
    std::erase(ends, *tokenizer_->eos);
    ends.insert(ends.begin(), *tokenizer_->eos);
  }
  const char* names[] = {"eos", "eot", "eom"};
  if (ends.size() > std::size(names)) {
    notes.push_back(fmt::format("GGUF names 3 end tokens; {} more are left out",
                                ends.size() - std::size(names)));
  }
  for (size_t i = 0; i < std::min(ends.size(), std::size(names)); ++i) {
    all.emplace_back(fmt::format("tokenizer.ggml.{}_token_id", names[i]), int64_t{ends[i]});
  }
  const Token bos = tokenizer_ && tokenizer_->bos ? *tokenizer_->bos : model_.config.bos_id;
  if (bos >= 0) {
    all.emplace_back("tokenizer.ggml.bos_token_id", int64_t{bos});
  }
  return all;
}

void ModelConverter::write_gguf(const std::function<void(const std::string&)>& on_tensor) {
  std::vector<std::string> noted;  // in the summary already
  GgufFileWriter writer(output_, entries(noted), gguf_layouts());
  if (const std::vector<float> frequencies = rope_frequencies(); !frequencies.empty()) {
    writer.write(std::as_bytes(std::span(frequencies)));
  }
  for (size_t i = 0; i < tensors_.size(); ++i) {
    write_tensor(tensors_[i], layouts_[i].dtype,
                 [&writer](std::span<const std::byte> bytes) { writer.write(bytes); });
    on_tensor(layouts_[i].name);
  }
  writer.commit();
}

void ModelConverter::write_folder(const std::function<void(const std::string&)>& on_tensor) {
  OutputFolder folder(output_);
  std::map<std::string, const ModelTensor*> by_name;
  for (const ModelTensor& tensor : tensors_) {
    by_name.emplace(tensor.name, &tensor);
  }
  SafetensorsWriter writer(folder.temporary() / "model.safetensors", layouts_, {{"format", "pt"}});
  for (const TensorLayout& layout : writer.tensors()) {
    write_tensor(*by_name.at(layout.name), layout.dtype,
                 [&writer](std::span<const std::byte> bytes) { writer.write(bytes); });
    on_tensor(layout.name);
  }
  writer.commit();
  write_file(folder.temporary() / "config.json",
             config_text(model_, summary_.dtype, input_.string()));
  if (tokenizer_) {
    write_tokenizer_files(*tokenizer_, folder.temporary());
  }
  folder.commit();
}

}  // namespace specdec
