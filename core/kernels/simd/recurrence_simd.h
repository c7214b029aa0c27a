// The recurrence of core/kernels/recurrence.cpp; see core/kernels/simd/for_each_simd.h.

template <class T>
inline Vec<T> sigmoid(Vec<T> x) {
  return splat<T>(1) / (exp<T>(-x) + 1);
}

/// out [size] = bias + the sum of input[i] * row i of the matrix [size, size], in order.
template <class T>
inline void block_gate(const T* input, const T* matrix, const T* bias, int64_t size, T* out) {
  constexpr int kCount = Lanes<T>::kCount;
  for (int64_t j = 0; j < size; j += kCount) {
    const int64_t lanes = std::min<int64_t>(kCount, size - j);
    Vec<T> sum = load_part(bias + j, lanes);
    for (int64_t i = 0; i < size; ++i) {
      const T* row = matrix + i * size + j;
      sum = fused<T>(splat(input[i]), lanes == kCount ? load(row) : load_part(row, lanes), sum);
    }
    store_part<T>(out + j, sum, lanes);
  }
}

/// One block of channels of one node; `scratch` holds three times its channels.
template <class T>
inline void recurrence_node(const RecurrenceTask<T>& task, const T* before, T* after, T* branch,
                            int64_t block, T* scratch) {
  constexpr int kCount = Lanes<T>::kCount;
  const int64_t size = task.block;
  const int64_t first = block * size;
  T* x = scratch;
  T* input_gate = scratch + size;
  T* decay_gate = scratch + 2 * size;
  for (int64_t j = 0; j < size; j += kCount) {
    const int64_t lanes = std::min<int64_t>(kCount, size - j);
    const int64_t channel = first + j;
    const auto part = [&](const T* row) { return load_part(row + channel, lanes); };
    Vec<T> sum = part(task.convolution_bias);
    for (int64_t back = task.width - 1; back > 0; --back) {
      const int64_t step = task.width - 1 - back;  // oldest first
      if (before != nullptr) {
        const Vec<T> old = part(before + step * task.channels);
        sum = fused<T>(old, part(task.convolution + step * task.channels), sum);
        if (step > 0) {
          store_part<T>(after + (step - 1) * task.channels + channel, old, lanes);
        }
      } else if (step > 0) {
        store_part<T>(after + (step - 1) * task.channels + channel, splat<T>(0), lanes);
      }
    }
    const Vec<T> newest = part(branch);
    sum = fused<T>(newest, part(task.convolution + (task.width - 1) * task.channels), sum);
    if (task.width > 1) {
      store_part<T>(after + (task.width - 2) * task.channels + channel, newest, lanes);
    }
    store_part<T>(x + j, sum, lanes);
  }
  const int64_t matrix = block * size * size;
  block_gate(x, task.input_gate + matrix, task.input_gate_bias + first, size, input_gate);
  block_gate(x, task.decay_gate + matrix, task.decay_gate_bias + first, size, decay_gate);
  const int64_t own = (task.width - 1) * task.channels + first;
  for (int64_t j = 0; j < size; j += kCount) {
    const int64_t lanes = std::min<int64_t>(kCount, size - j);
    Vec<T> h = load_part(x + j, lanes) * sigmoid<T>(load_part(input_gate + j, lanes));
    if (before != nullptr) {
      const Vec<T> log_a =
          sigmoid<T>(load_part(decay_gate + j, lanes)) * load_part(task.decay + first + j, lanes);
      const Vec<T> rest = splat<T>(1) - exp<T>(log_a + log_a);
      T roots[kCount];
      store(roots, rest);
      for (T& root : roots) {
        root = std::sqrt(root);
      }
      h = fused<T>(exp<T>(log_a), load_part(before + own + j, lanes), h * load(roots));
    }
    store_part<T>(after + own + j, h, lanes);
    store_part<T>(branch + first + j, h, lanes);
  }
}

/// Blocks begin to end of all nodes.
template <class T>
inline void recurrence_blocks(const RecurrenceTask<T>& task, int64_t begin, int64_t end,
                              T* scratch) {
  for (int64_t block = begin; block < end; ++block) {
    for (int64_t node = 0; node < task.nodes; ++node) {
      const NodeState& place = task.nodes_of[node];
      const T* before = place.before < 0 ? nullptr : task.states + place.before * task.state_size;
      T* after = task.states + place.after * task.state_size;
      T* branch = task.branches + (2 * node + 1) * task.channels;
      recurrence_node(task, before, after, branch, block, scratch);
    }
  }
}
