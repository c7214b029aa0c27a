// A program of somebody else, without LibTorch: the one header of the grammars.
#include <grammar/engine.h>

#include <iostream>

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: grammar_program TOKENIZER\n";
    return 2;
  }
  const auto engine = std::make_shared<specdec::GrammarEngine>(specdec::load_tokenizer(argv[1]));
  specdec::GrammarSource source;
  source.text = R"({"type": "array", "items": {"const": 1}, "minItems": 1, "maxItems": 1})";
  source.schema.schema_order = false;
  specdec::CheckedMatcher matcher(engine, engine->compile(source, {.seconds = 60.0}));
  std::vector<int32_t> bitmask(static_cast<size_t>(engine->words()));
  engine->fill_batch(std::vector<const specdec::CheckedMatcher*>{&matcher}, bitmask);
  std::cout << matcher.mask().count() << " tokens, forced: " << matcher.forced_bytes() << "\n";
  try {
    (void)matcher.accept(-1);
  } catch (const specdec::Error& error) {
    std::cout << error.what() << "\n";
  }
}
