#include "matcher.h"

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "apply_bitmask.h"
#include "core/error.h"
#include "core/formats/utf8.h"
#include "tensor.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace specdec::python {
namespace {

using Matcher = CheckedMatcher;
using Unlocked = nb::gil_scoped_release;
using Rows = std::vector<int64_t>;

/// Any int of Python as a token: those that no vocabulary has keep their error.
Token token_of(int64_t id) {
  if (id != static_cast<Token>(id)) {
    throw Error(fmt::format("token {} is outside every vocabulary", id));
  }
  return static_cast<Token>(id);
}

bool accept_string(Matcher& matcher, nb::handle text) {
  char* data = nullptr;
  Py_ssize_t size = 0;
  if (PyBytes_Check(text.ptr()) != 0) {
    PyBytes_AsStringAndSize(text.ptr(), &data, &size);
  } else if (PyUnicode_Check(text.ptr()) != 0) {
    data = const_cast<char*>(PyUnicode_AsUTF8AndSize(text.ptr(), &size));
  } else {
    throw nb::type_error("accept_string takes str or bytes");
  }
  if (data == nullptr) {
    throw nb::python_error();
  }
  const Unlocked unlocked;
  return matcher.accept_bytes({data, static_cast<size_t>(size)});
}

/// The forced text without an unfinished UTF-8 character at the end.
std::string jump_forward(const Matcher& matcher) {
  const Unlocked unlocked;
  std::string bytes = matcher.forced_bytes();
  for (std::string_view rest = bytes; !rest.empty();) {
    const Utf8Scan scan = scan_utf8(rest);
    if (scan.prefix || !scan.valid) {
      bytes.resize(bytes.size() - rest.size());
      break;
    }
    rest.remove_prefix(scan.bytes);
  }
  return bytes;
}

/// Pairs of a name and bytes.
nb::list captures(const Matcher& matcher) {
  std::vector<Capture> found;
  {
    const Unlocked unlocked;
    found = matcher.captures();
  }
  nb::list pairs;
  for (const Capture& capture : found) {
    pairs.append(
        nb::make_tuple(capture.name, nb::bytes(capture.bytes.data(), capture.bytes.size())));
  }
  return pairs;
}

bool fill_row(const Matcher& matcher, nb::handle bitmask, int64_t index) {
  const Tensor tensor(bitmask, "the bitmask");
  const GrammarEngine& engine = matcher.engine();
  const std::span<int32_t> words = tensor.bitmask(engine.words(), engine.vocab_size());
  if (index < 0 || index >= tensor.rows()) {
    throw Error(
        fmt::format("there is no row {} in the bitmask of shape {}", index, tensor.shape()));
  }
  const auto width = static_cast<size_t>(engine.words());
  const Unlocked unlocked;
  matcher.fill(words.subspan(static_cast<size_t>(index) * width, width));
  return true;
}

void fill_rows(const nb::sequence& matchers, nb::handle bitmask,
               const std::optional<Rows>& indices) {
  std::vector<const Matcher*> batch;
  std::vector<nb::object> held;  // a list may change while the GIL is released
  for (const nb::handle matcher : matchers) {
    if (!nb::isinstance<Matcher>(matcher)) {
      throw nb::type_error("matchers must be a list of GrammarMatcher");
    }
    if (!nb::inst_ready(matcher)) {
      throw nb::type_error("a GrammarMatcher is not initialized; call super().__init__(grammar)");
    }
    held.push_back(nb::borrow(matcher));
    batch.push_back(nb::inst_ptr<Matcher>(matcher));
  }
  if (batch.empty()) {
    return;
  }
  const GrammarEngine& engine = batch.front()->engine();
  const Tensor tensor(bitmask, "the bitmask");
  const std::span<int32_t> words = tensor.bitmask(engine.words(), engine.vocab_size());
  if (indices && indices->size() != batch.size()) {
    throw Error(fmt::format("{} matchers for {} indices", batch.size(), indices->size()));
  }
  const Unlocked unlocked;
  engine.fill_batch(batch, words, indices.value_or(Rows()));
}

void apply(nb::handle logits, nb::handle bitmask, std::optional<int64_t> vocab_size,
           const std::optional<Rows>& indices) {
  const Tensor values(logits, "the logits tensor");
  const Tensor bits(bitmask, "the bitmask");
  if (indices && indices->empty()) {
    return;
  }
  const Unlocked unlocked;
  apply_bitmask(values, bits, vocab_size, indices.value_or(Rows()));
}

constexpr const char* kMatcherHelp =
    "A place in a text of a grammar. A step is an accepted token or string.\n\n"
    "One thread at a time may use a matcher; a second one gets GrammarError. Copies are cheap\n"
    "(eight bytes a step) and independent. After a stop token only rollback, reset, copy and\n"
    "the properties may be used.";

constexpr const char* kFillHelp =
    "Writes which tokens may come next into row `index` of `bitmask`.\n\n"
    "bitmask: int32, [rows, ceil(vocab_size / 32)] or [ceil(vocab_size / 32)], contiguous, in the\n"
    "CPU's memory: a torch tensor, a numpy array, or anything with a buffer or DLPack. Bit i of\n"
    "word w is token 32 * w + i; 1 = allowed. Nothing is copied. Returns True: the mask has to be\n"
    "applied.";

}  // namespace

void bind_matcher(nb::module_& m) {
  using WithoutGil = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<Matcher>(m, "GrammarMatcher", kMatcherHelp)
      .def(
          "__init__",
          [](Matcher* self, const PythonGrammar& grammar) {
            new (self) Matcher(grammar.engine, grammar.grammar);
          },
          "compiled_grammar"_a)
      .def(
          "accept_token", [](Matcher& self, int64_t token) { return self.accept(token_of(token)); },
          "token_id"_a, WithoutGil(),
          "False, and nothing changed, when the grammar forbids the token here.")
      .def("accept_string", accept_string, "text"_a,
           "The same of str or bytes, as one step, however tokens cut them.")
      .def(
          "is_allowed",
          [](const Matcher& self, int64_t token) { return self.allows(token_of(token)); },
          "token_id"_a, WithoutGil(), "True when the token may come next.")
      .def("fill_next_token_bitmask", fill_row, "bitmask"_a, "index"_a = 0, kFillHelp)
      .def(
          "allowed_tokens", [](const Matcher& self) { return self.mask().tokens(); }, WithoutGil(),
          "The ids of all tokens that may come next, ascending.")
      .def("find_jump_forward_string", jump_forward,
           "What every text has next, up to the first choice; \"\" when there is one now. Only "
           "whole\n"
           "characters.")
      .def(
          "forced_bytes",
          [](const Matcher& self) {
            std::string bytes;
            {
              const Unlocked unlocked;
              bytes = self.forced_bytes();
            }
            return nb::bytes(bytes.data(), bytes.size());
          },
          "The same as bytes; may end inside a character.")
      .def(
          "forced_tokens",
          [](const Matcher& self, int64_t limit) {
            if (limit < 0) {
              throw Error(fmt::format("limit is {}; it must not be negative", limit));
            }
            return self.forced_tokens(limit);
          },
          "limit"_a = 1024, WithoutGil(),
          "The tokens that come next: those that are the only allowed ones, then the tokenizer's "
          "own\n"
          "cut of the forced bytes, which could be cut in other ways.")
      .def("rollback", &Matcher::rollback, "num_tokens"_a = 1, WithoutGil(),
           "Forgets the newest steps.")
      .def("reset", &Matcher::reset, WithoutGil(), "Forgets all steps.")
      .def("is_terminated", &Matcher::is_ended, "True after a stop token.")
      .def("is_completed", &Matcher::is_complete, WithoutGil(),
           "True when the text may end here, or has ended.")
      .def_prop_ro("limit", &Matcher::limit,
                   "Why it is not known what may come next, when a limit of the grammar was "
                   "reached; then no\ntoken may come. Else None.")
      .def_prop_ro("num_steps", &Matcher::length, "Accepted tokens and strings.")
      .def_prop_ro(
          "vocab_size", [](const Matcher& self) { return self.engine().vocab_size(); },
          "Width of the model's logits.")
      .def_prop_ro(
          "stop_token_ids",
          [](const Matcher& self) { return self.engine().vocabulary().end_tokens(); },
          "Tokens that end a text.")
      .def("captures", captures,
           "What the rules of a Lark grammar matched that are marked, name[capture]: pairs of the\n"
           "name and the bytes, in the order of the text.")
      .def("explain", &Matcher::explain, WithoutGil(), "What may come next, for people.")
      .def(
          "copy", [](const Matcher& self) { return Matcher(self); }, WithoutGil(),
          "A matcher of its own at the same place.")
      .def(
          "fork", [](const Matcher& self) { return Matcher(self); }, WithoutGil(), "As copy.")
      .def("__copy__", [](const Matcher& self) { return Matcher(self); })
      .def(
          "__deepcopy__", [](const Matcher& self, nb::handle) { return Matcher(self); }, "memo"_a);
  m.def("batch_fill_next_token_bitmask", fill_rows, "matchers"_a, "bitmask"_a,
        "indices"_a.none() = nb::none(),
        "fill_next_token_bitmask of matchers[i] into row indices[i] (row i without indices), in\n"
        "parallel; other rows stay. The matchers belong to one compiler, each stands once.");
  m.def("masked_columns", masked_columns, "columns"_a, "words"_a, "vocab_size"_a.none());
  m.def("apply_bitmask", apply, "logits"_a, "bitmask"_a, "vocab_size"_a.none() = nb::none(),
        "indices"_a.none() = nb::none());
}

}  // namespace specdec::python
