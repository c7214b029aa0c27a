"""llama.cpp through llama-cpp-python's low-level functions, for the scripts beside this one.

    python3 -m venv --system-site-packages VENV
    export CMAKE_ARGS='-DGGML_NATIVE=ON -DGGML_OPENMP=ON'
    VENV/bin/pip install --no-binary llama-cpp-python llama-cpp-python==0.3.36
    VENV/bin/pip install numpy gguf==0.19.0 transformers==5.23.0     # torch comes from the system's packages

Where llama.cpp was built by itself (cmake -S vendor/llama.cpp of that source package), LLAMA_CPP_LIB_PATH names the
folder of its libraries, so that its programs and these scripts run the same code.
"""
import ctypes
import time

import llama_cpp
import numpy

F32 = 0  # ggml's number of the type


@llama_cpp.llama_log_callback
def be_quiet(level, text, data):
    del level, text, data


class LlamaCpp:
    """A model and one sequence of tokens that it has read."""

    def __init__(self, path, threads, context=1024, exact=False):
        """exact: keys and values in float32 and plain attention, instead of llama.cpp's defaults."""
        llama_cpp.llama_log_set(be_quiet, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        options = llama_cpp.llama_model_default_params()
        options.n_gpu_layers = 0
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), options)
        if not self.model:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.vocab_size = llama_cpp.llama_vocab_n_tokens(self.vocab)
        options = llama_cpp.llama_context_default_params()
        options.n_ctx = options.n_batch = options.n_ubatch = context
        options.n_threads = options.n_threads_batch = threads
        if exact:
            options.type_k = options.type_v = F32
            options.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self.context = llama_cpp.llama_init_from_model(self.model, options)
        self.memory = llama_cpp.llama_get_memory(self.context)
        self.length = 0

    def close(self):
        llama_cpp.llama_free(self.context)
        llama_cpp.llama_model_free(self.model)

    def truncate(self, length):
        llama_cpp.llama_memory_seq_rm(self.memory, 0, length, -1)
        self.length = length

    def forward(self, tokens, rows=1):
        """Reads tokens after those it has read; logits [rows, vocabulary] of the last ones."""
        batch = llama_cpp.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i] = token
            batch.pos[i] = self.length + i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = i >= len(tokens) - rows
        failed = llama_cpp.llama_decode(self.context, batch)
        llama_cpp.llama_batch_free(batch)
        if failed:
            raise RuntimeError(f"llama_decode says {failed}")
        self.length += len(tokens)
        first = llama_cpp.llama_get_logits_ith(self.context, -rows)
        return numpy.ctypeslib.as_array(first, shape=(rows, self.vocab_size))

    def greedy(self, prompt, count, ends=()):
        """Plain decoding: (tokens, seconds of the prompt, seconds of the rest); stops after an end token."""
        self.truncate(0)
        begin = time.perf_counter()
        out = [int(self.forward(prompt)[0].argmax())]
        middle = time.perf_counter()
        while len(out) < count and out[-1] not in ends:
            out.append(int(self.forward(out[-1:])[0].argmax()))
        return out, middle - begin, time.perf_counter() - middle

    def greedy_lookup(self, prompt, count, draft_length=10, max_ngram=2, ends=()):
        """Prompt lookup as llama-cpp-python's LlamaPromptLookupDecoding does it, and the number of forwards."""
        self.truncate(0)
        begin = time.perf_counter()
        out = [int(self.forward(prompt)[0].argmax())]
        middle = time.perf_counter()
        forwards = 1
        while len(out) < count and not any(token in ends for token in out):
            draft = look_up(prompt + out, max_ngram, min(draft_length, count - len(out) - 1))
            best = self.forward(out[-1:] + draft, rows=len(draft) + 1).argmax(axis=1)
            accepted = 0
            while accepted < len(draft) and best[accepted] == draft[accepted]:
                accepted += 1
            out += draft[:accepted] + [int(best[accepted])]
            self.truncate(len(prompt) + len(out) - 1)
            forwards += 1
        stop = next((i + 1 for i, token in enumerate(out) if token in ends), count)
        return out[:stop], middle - begin, time.perf_counter() - middle, forwards

    def greedy_in_grammar(self, prompt, count, gbnf, ends=()):
        """Plain decoding in a grammar, as llama.cpp's programs sample: the best token is checked alone, and only
        where it is refused the grammar is asked of all. Returns what greedy does."""
        grammar = llama_cpp.llama_sampler_init_grammar(self.vocab, gbnf.encode(), b"root")
        if not grammar:
            raise RuntimeError(f"llama.cpp cannot read the grammar:\n{gbnf}")
        self.truncate(0)
        begin = middle = time.perf_counter()
        out, fed = [], prompt
        while len(out) < count and (not out or out[-1] not in ends):
            out.append(self.choose_in_grammar(grammar, self.forward(fed)[0]))
            llama_cpp.llama_sampler_accept(grammar, out[-1])
            fed = out[-1:]
            middle = time.perf_counter() if len(out) == 1 else middle
        end = time.perf_counter()
        llama_cpp.llama_sampler_free(grammar)
        return out, middle - begin, end - middle

    def choose_in_grammar(self, grammar, logits):
        best = int(logits.argmax())
        if numpy.isfinite(self.masked(grammar, numpy.array([best]), logits)[0]):
            return best
        return int(self.masked(grammar, numpy.arange(self.vocab_size), logits).argmax())

    @staticmethod
    def masked(grammar, tokens, logits):
        """The tokens' logits, minus infinity where the grammar refuses them."""
        data = numpy.zeros(len(tokens), dtype=[("id", "i4"), ("logit", "f4"), ("p", "f4")])
        data["id"], data["logit"] = tokens, logits[tokens]
        pointer = data.ctypes.data_as(ctypes.POINTER(llama_cpp.llama_token_data))
        array = llama_cpp.llama_token_data_array(data=pointer, size=len(tokens), selected=-1, sorted=False)
        llama_cpp.llama_sampler_apply(grammar, ctypes.byref(array))
        return data["logit"]

    def text(self, tokens):
        """Without end tokens and other control tokens."""
        ids = (llama_cpp.llama_token * len(tokens))(*tokens)
        buffer = ctypes.create_string_buffer(16 * len(tokens) + 16)
        size = llama_cpp.llama_detokenize(self.vocab, ids, len(tokens), buffer, len(buffer), True, False)
        return buffer.raw[:max(size, 0)].decode("utf-8", "replace")

    def tokenize(self, text):
        text = text.encode()
        ids = (llama_cpp.llama_token * (len(text) + 8))()
        count = llama_cpp.llama_tokenize(self.vocab, text, len(text), ids, len(ids), False, False)
        return list(ids[:count])


def look_up(tokens, max_ngram, length):
    """What followed the earliest match of the longest n-gram at the end, as llama-cpp-python does."""
    tokens = numpy.asarray(tokens)
    for size in range(min(max_ngram, len(tokens) - 1), 0, -1):
        windows = numpy.lib.stride_tricks.sliding_window_view(tokens, size)
        for start in (windows == tokens[-size:]).all(axis=1).nonzero()[0]:
            found = tokens[start + size:start + size + length]
            if start + size < len(tokens) and len(found) > 0:
                return [int(token) for token in found]
    return []
