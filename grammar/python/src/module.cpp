// The extension module specdec_grammar._engine: grammar/engine.h for Python.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "core/tokenizers/control_pieces.h"
#include "core/tokenizers/sentencepiece_tokenizer.h"
#include "grammar/engine.h"
#include "grammar_source.h"
#include "matcher.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace specdec::python {
namespace {

using Ids = std::vector<Token>;

/// A call that may take long or wait: other Python threads go on.
using WithoutGil = nb::call_guard<nb::gil_scoped_release>;

std::string bytes_of(nb::handle text) {
  if (nb::isinstance<nb::bytes>(text)) {
    const auto bytes = nb::cast<nb::bytes>(text);
    return {bytes.c_str(), bytes.size()};
  }
  return nb::cast<std::string>(text);
}

void bind_tokenizer(nb::module_& m) {
  nb::class_<Tokenizer>(m, "TextTokenizer")
      .def_prop_ro("vocab_size", &Tokenizer::vocab_size)
      .def("encode", &Tokenizer::encode, "text"_a, WithoutGil())
      .def(
          "decode",
          [](const Tokenizer& self, const Ids& ids) {
            const std::string text = self.decode(ids);
            return nb::bytes(text.data(), text.size());
          },
          "token_ids"_a)
      .def(
          "token_bytes",
          [](const Tokenizer& self, Token token) {
            const std::string_view text = self.token_bytes(token);
            return nb::bytes(text.data(), text.size());
          },
          "token_id"_a)
      .def("piece", &Tokenizer::piece, "token_id"_a)
      .def("find_piece", &Tokenizer::find_piece, "piece"_a)
      .def("end_tokens", [](const Tokenizer& self) { return answer_end_tokens(self); });
  m.def(
      "load_tokenizer",
      [](const std::string& path) { return std::shared_ptr<Tokenizer>(load_tokenizer(path)); },
      "path"_a, WithoutGil());
}

struct PythonEngineOptions {
  int64_t vocab_size;
  std::optional<Ids> end_tokens;
  int threads;
  uint64_t cache_bytes;
  std::string cache_folder;

  EngineOptions options() const {
    EngineOptions options;
    options.vocab_size = vocab_size;
    options.end_tokens = end_tokens;
    options.threads = threads;
    options.max_cache_bytes = cache_bytes;
    options.cache.folder = cache_folder;
    return options;
  }
};

std::vector<std::string> token_list(const nb::sequence& tokens) {
  std::vector<std::string> texts;
  for (const nb::handle token : tokens) {
    texts.push_back(bytes_of(token));
  }
  return texts;
}

/// Ends a compile from another thread.
struct CancelToken {
  std::atomic<bool> cancelled = false;
};

void bind_engine(nb::module_& m) {
  nb::class_<CancelToken>(m, "CancelToken",
                          "Ends, from another thread, the compiles that it was given to.")
      .def(nb::init<>())
      .def("cancel", [](CancelToken& self) { self.cancelled = true; })
      .def_prop_ro("cancelled", [](const CancelToken& self) { return self.cancelled.load(); });

  nb::class_<PythonGrammar>(
      m, "CompiledGrammar",
      "A grammar for one tokenizer. Immutable; matchers and threads share it.")
      .def_prop_ro(
          "vocab_size", [](const PythonGrammar& self) { return self.engine->vocab_size(); },
          "Width of the model's logits.")
      .def_prop_ro(
          "stop_token_ids",
          [](const PythonGrammar& self) { return self.engine->vocabulary().end_tokens(); },
          "Tokens that end a text; allowed exactly where it is complete.")
      .def("__eq__", [](const PythonGrammar& self,
                        const PythonGrammar& other) { return self.grammar == other.grammar; })
      .def("__hash__",
           [](const PythonGrammar& self) { return std::hash<const void*>()(self.grammar.get()); });

  const auto compile = [](const std::shared_ptr<GrammarEngine>& self, const GrammarSource& source,
                          std::optional<double> timeout, const CancelToken* cancel) {
    CompileControl control;
    control.seconds = timeout.value_or(control.seconds);
    control.cancelled = cancel == nullptr ? nullptr : &cancel->cancelled;
    return PythonGrammar{self, self->compile(source, control)};
  };
  nb::class_<GrammarEngine>(m, "Engine")
      .def_static(
          "of_tokenizer",
          [](const std::shared_ptr<Tokenizer>& tokenizer, int64_t vocab_size,
             std::optional<Ids> end_tokens, int threads, uint64_t cache_bytes,
             const std::string& cache_folder) {
            const PythonEngineOptions options{vocab_size, std::move(end_tokens), threads,
                                              cache_bytes, cache_folder};
            return std::make_shared<GrammarEngine>(tokenizer, options.options());
          },
          "tokenizer"_a, "vocab_size"_a, "end_tokens"_a.none(), "threads"_a, "cache_bytes"_a,
          "cache_folder"_a)
      .def_static(
          "of_bytes",
          [](const nb::sequence& tokens, int64_t vocab_size, std::optional<Ids> end_tokens,
             int threads, uint64_t cache_bytes, const std::string& cache_folder) {
            const PythonEngineOptions options{vocab_size, std::move(end_tokens), threads,
                                              cache_bytes, cache_folder};
            return std::make_shared<GrammarEngine>(token_list(tokens), options.options());
          },
          "tokens"_a, "vocab_size"_a, "end_tokens"_a.none(), "threads"_a, "cache_bytes"_a,
          "cache_folder"_a)
      .def("compile", compile, "source"_a, "timeout"_a.none() = nb::none(),
           "cancel"_a.none() = nb::none(), WithoutGil())
      .def("clear_cache", &GrammarEngine::clear_cache, WithoutGil())
      .def_prop_ro("cached_bytes", &GrammarEngine::cached_bytes)
      .def_prop_ro("cached_grammars", &GrammarEngine::cached_grammars)
      .def_prop_ro("vocab_size", &GrammarEngine::vocab_size)
      .def_prop_ro("end_tokens",
                   [](const GrammarEngine& self) { return self.vocabulary().end_tokens(); });
}

}  // namespace
}  // namespace specdec::python

NB_MODULE(_engine, m) {
  m.doc() = "The compiled part of specdec_grammar.";
  nb::exception<specdec::Error> error(m, "GrammarError", PyExc_ValueError);
  error.attr("__doc__") =
      "Something that the caller can fix; the message says what, where and how.";
  nb::exception<specdec::GrammarInterrupted> interrupted(m, "GrammarInterrupted", error);
  interrupted.attr("__doc__") = "Compiling took longer than its time, or was cancelled.";
  specdec::python::bind_tokenizer(m);
  specdec::python::bind_grammar_source(m);
  specdec::python::bind_engine(m);
  specdec::python::bind_matcher(m);
}
