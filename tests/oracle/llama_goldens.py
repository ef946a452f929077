"""Golden values of SmolLM2-135M from llama.cpp: next-token log-probabilities, greedy continuations, perplexity.

Oracle: libllama of the PyPI source package llama-cpp-python 0.3.36 (cmake, Release, GGML_NATIVE, shared libraries), on the same
weights as an F32 file (gguf-py dequantises), KV cache f32, flash attention off, one thread pool of 2.

    PYTHONPATH=<llama-cpp-python sources> LLAMA_CPP_LIB_PATH=<folder of libllama.so> \
        python tests/oracle/llama_goldens.py SmolLM2-f32.gguf tests/oracle/perplexity_text.txt \
        > tests/fixtures/llama_cpp/smollm2_135m_f32.json
"""
import ctypes, json, sys
import numpy as np
import llama_cpp as L

path, text_path = sys.argv[1:3]
L.llama_backend_init()
quiet = L.llama_log_callback(lambda *a: None)  # kept alive: ctypes frees a callback nobody holds
L.llama_log_set(quiet, None)
mp = L.llama_model_default_params()
model = L.llama_model_load_from_file(path.encode(), mp)
vocab = L.llama_model_get_vocab(model)
n_vocab = L.llama_vocab_n_tokens(vocab)


def context(n_ctx):
    cp = L.llama_context_default_params()
    cp.n_ctx, cp.n_batch, cp.n_ubatch = n_ctx, n_ctx, 512
    cp.type_k, cp.type_v = 0, 0  # GGML_TYPE_F32
    cp.flash_attn_type = 0  # disabled
    cp.n_threads, cp.n_threads_batch = 2, 2
    return L.llama_init_from_model(model, cp)


def tokenize(text, special):
    b = text.encode()
    buf = (L.llama_token * (len(b) + 16))()
    n = L.llama_tokenize(vocab, b, len(b), buf, len(buf), False, special)
    assert n >= 0
    return list(buf[:n])


def decode(ctx, tokens, pos0, all_logits):
    batch = L.llama_batch_init(len(tokens), 0, 1)
    batch.n_tokens = len(tokens)
    for i, t in enumerate(tokens):
        batch.token[i], batch.pos[i], batch.n_seq_id[i] = t, pos0 + i, 1
        batch.seq_id[i][0] = 0
        batch.logits[i] = 1 if all_logits or i == len(tokens) - 1 else 0
    assert L.llama_decode(ctx, batch) == 0
    L.llama_batch_free(batch)


def logits(ctx, i):
    return np.ctypeslib.as_array(L.llama_get_logits_ith(ctx, i), shape=(n_vocab,)).astype(np.float64)


def logprobs(x):
    x = x - x.max()
    return x - np.log(np.exp(x).sum())


def chat(user):
    return ("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
            f"<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n")


RAW = [
    "The capital of France is", "def fibonacci(n):\n    if n <", "Water boils at a temperature of", "1, 2, 3, 4, 5,",
    "Once upon a time, in a village by the sea, there lived", "The quick brown fox jumps over the lazy",
    "中国的首都是", "In 1969, Neil Armstrong became the first person to", "SELECT name, age FROM users WHERE",
    "To be, or not to be, that is the",
]
CHATS = [
    "What is the capital of Italy?", "Write a haiku about rain.", "Explain photosynthesis in one paragraph.",
    "List three prime numbers.", "Translate 'good morning' into French.", "What is 12 times 12?",
    "Who wrote Romeo and Juliet?", "Give me a recipe for pancakes.", "Write a Python function that reverses a string.",
    "Why is the sky blue?", "What are the planets of the solar system?", "Tell me a short story about a robot.",
    "How do I boil an egg?", "What is the difference between a virus and a bacterium?", "Name five animals that live in the sea.",
    "Summarise the plot of Cinderella.", "What does HTTP stand for?", "Write an email asking for a day off.",
    "How many days are there in a leap year?", "Describe the colour red to a blind person.",
    "What is machine learning?", "Give an example of a metaphor.",
]

out = {"oracle": "llama.cpp in llama-cpp-python " + L.__version__, "weights": "SmolLM2-135M-Instruct.Q4_1.gguf dequantised to F32",
       "kv": "f32", "flash_attention": False, "next_token": [], "greedy": []}
for text in RAW + [chat(CHATS[0]), chat(CHATS[4])]:
    ids = tokenize(text, True)
    ctx = context(1024)
    decode(ctx, ids, 0, False)
    lp = logprobs(logits(ctx, -1))
    top = np.argsort(-lp, kind="stable")[:10]
    out["next_token"].append({"text": text, "ids": ids, "top": [[int(t), round(float(lp[t]), 6)] for t in top]})
    L.llama_free(ctx)
for user in CHATS:
    ids = tokenize(chat(user), True)
    ctx = context(1024)
    decode(ctx, ids, 0, False)
    tokens, gaps = [], []
    for step in range(64):  # past the end of sequence too: a longer comparison
        x = logits(ctx, -1)
        two = np.partition(x, -2)[-2:]
        t = int(x.argmax())
        tokens.append(t)
        gaps.append(round(float(two[1] - two[0]), 5))
        decode(ctx, [t], len(ids) + step, False)
    out["greedy"].append({"user": user, "prompt_ids": ids, "tokens": tokens, "smallest_gap": min(gaps),
                          "gaps": {str(i): g for i, g in enumerate(gaps) if g < 0.1}})
    L.llama_free(ctx)
text = open(text_path, encoding="utf-8").read()
ids = tokenize(text, False)
ctx = context(2048)
decode(ctx, ids, 0, True)
nll = 0.0
for i in range(len(ids) - 1):
    nll -= logprobs(logits(ctx, i))[ids[i + 1]]
out["perplexity"] = {"text": text_path.split("/")[-1], "ids": ids, "positions": len(ids) - 1, "nll_mean": nll / (len(ids) - 1),
                     "perplexity": float(np.exp(nll / (len(ids) - 1)))}
json.dump(out, sys.stdout, ensure_ascii=False, separators=(",", ":"))
print()
