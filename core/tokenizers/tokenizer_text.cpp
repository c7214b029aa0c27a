#include "core/tokenizers/tokenizer_text.h"

#include <utility>

#include "core/formats/tokenizer_json_reader.h"
#include "core/formats/tokenizer_json_sax.h"
#include "core/tokenizers/bpe_tokenizer.h"
#include "core/tokenizers/byte_level_json.h"
#include "core/tokenizers/byte_level_tokenizer.h"
#include "core/tokenizers/tokenizer_files.h"

namespace specdec {

std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerText& text,
                                          std::vector<std::string>* notes) {
  const std::string& where = text.where;
  TokenizerJsonText split = split_tokenizer_json(text.json, where);
  if (std::string left_out = leave_out_beyond(split, text.vocab_size, text.model);
      notes != nullptr && !left_out.empty()) {
    notes->push_back(std::move(left_out));
  }
  return is_byte_level(split)
             ? byte_level_tokenizer(parse_byte_level_json(split, text.config, where), where)
             : bpe_tokenizer(parse_tokenizer_json(std::move(split), where, text.config),
                             text.config);
}

}  // namespace specdec
