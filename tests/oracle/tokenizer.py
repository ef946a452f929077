"""Token ids of llama.cpp for tests/fixtures/engine/tokenizer.json.

    python tests/oracle/tokenizer.py SmolLM2-135M-Instruct.Q4_1.gguf > tests/fixtures/engine/tokenizer.json

Needs llama-cpp-python 0.3.36 and numpy. The other pre-tokenizers run over the same vocabulary by overriding
`tokenizer.ggml.pre`, which changes only how words are split.
"""
import ctypes
import hashlib
import json
import sys

import llama_cpp

TEXTS = [
    "", " ", "a", "Hello", "Hello world", " Hello world", "Hello, world! How's it going? I'm fine, they're not; we've WON'T.",
    "The quick brown fox jumps over the lazy dog.", "IT'S SHE'LL I'D YOU'RE 'tis 'Re 's", "don't can't l'été aujourd'hui",
    "1234567890", "3.14159 2,718 1e-5 0x1F 12 345 6", "Room 101, 24/7, 2026-11-30T05:09:00Z", "½ ² ٣٤ Ⅷ ①②③ 一二三 100％",
    "你好，世界！今天天气怎么样？", "中文和 English 混合 text，数字123。", "日本語のテキスト、カタカナとひらがな。", "한국어 문장입니다.",
    "Привет, как дела? Всё хорошо.", "مرحبا بالعالم", "שלום עולם", "नमस्ते दुनिया", "สวัสดีชาวโลก", "Ελληνικά και Ñandú façade naïve Ærøskøbing",
    "e\u0301 a\u0308 cafe\u0301 vs café", "🙂", "😀👍🏽👩‍👩‍👧‍👦 🇩🇪🏳️‍🌈 text", "→ ≤ ∑∫√∞ ℝ ⊂ ¬∃x", "“quotes” ‘single’ – dash — em… «guillemets»",
    "  two leading", "trailing two  ", "a  b   c    d     e", " \t\t tab \t mix", "\n", "\n\n", "\n\n\n\n", "a\nb\n\nc\n \n d", "line\r\nline\r\n\r\nend\r",
    "\u00a0non\u00a0breaking\u3000ideographic\u2009thin\u200bzero", " " * 37, " " * 300 + "x", "\t" * 9 + "\n" * 3 + "  x",
    "def f(x):\n    if x > 0:\n        return x ** 2\n    else:\n        return -x  # note\n",
    "for (int i = 0; i < n; ++i) { a[i] += b[i] << 2; } // done\n\t/* c */",
    "fn main() -> Result<(), Box<dyn Error>> {\n\tprintln!(\"{:?}\", vec![1u8; 32]);\n\tOk(())\n}\n",
    "{\"key\": [1, 2.5, null, true], \"nested\": {\"a\": \"b\\n\"}}", "<html><body class=\"x\">&amp; &lt;</body></html>",
    "https://example.com/path?q=1&r=%20#frag user@example.org", "$a+b=c^2~|<=> #@!%&*()_-[]{};:'\",.<>/?\\`", "C++ C# F# .NET a.b.c __init__ snake_case camelCase XMLHttpRequest",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "supercalifragilisticexpialidocious antidisestablishmentarianism",
    "<|im_start|>", "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n<|im_start|>user\nHi!<|im_end|>\n<|im_start|>assistant\n",
    "<|endoftext|><|endoftext|> x <|im_end|>", "not <|im_start special |im_end|> <|im_end|", "<file_sep>a<filename>b<repo_name>c<reponame>", "text<|im_end|>text", "  <|im_end|>  \n",
    "\u0000\u0001\u0007\u001b[31m\u007f", "\ufeffBOM \ufffd replacement", "\U0001d54f\U00020000\U0010ffff\ue000",
    "The year 1999 had 365 days; 7 of them 7,7 7 77 777 7777 77777.",
]
PRES = ["smollm", "gpt-2", "default", "llama-bpe", "qwen2"]


def main(path):
    rows = [{"text": t, "parse_special": s, "ids": {}} for t in TEXTS for s in ([True, False] if "<|" in t or "<f" in t else [True])]
    digest = None
    for pre in PRES:
        model = llama_cpp.Llama(path, vocab_only=True, verbose=False, kv_overrides={"tokenizer.ggml.pre": pre})
        for row in rows:
            row["ids"][pre] = model.tokenize(row["text"].encode(), add_bos=False, special=row["parse_special"])
        if pre == "smollm":
            # Every id's bytes, each with its length in front, as one hash.
            hasher, eog, buffer = hashlib.sha256(), [], ctypes.create_string_buffer(1024)
            vocabulary = llama_cpp.llama_model_get_vocab(model._model.model)
            for token in range(model.n_vocab()):
                # Not `detokenize`: it gives nothing for tokens longer than 32 bytes.
                size = llama_cpp.llama_token_to_piece(vocabulary, token, buffer, len(buffer), 0, True)
                piece = buffer.raw[:size]
                hasher.update(len(piece).to_bytes(4, "little") + piece)
                if llama_cpp.llama_vocab_is_eog(vocabulary, token):
                    eog.append(token)
            digest = hasher.hexdigest()
            special = {"bos": model.token_bos(), "eos": model.token_eos(), "eog": eog, "tokens": model.n_vocab()}
    print("{")
    print(' "made_by": "tests/oracle/tokenizer.py with llama.cpp of llama-cpp-python %s",' % llama_cpp.__version__)
    print(' "special": %s,' % json.dumps(special))
    print(' "pieces_sha256": "%s",' % digest)
    print(' "rows": [')
    print(",\n".join("  " + json.dumps(row, separators=(",", ":")) for row in rows))
    print(" ]\n}")


main(sys.argv[1])
