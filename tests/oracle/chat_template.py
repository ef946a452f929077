"""Chats as jinja2 writes them, for tests/fixtures/engine/chat_template.json.

    python tests/oracle/chat_template.py > tests/fixtures/engine/chat_template.json

Needs jinja2 (3.1). The environment is the one transformers builds in `_compile_jinja_template`.
"""
import json
from datetime import datetime, timezone

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = 1764482940  # 2025-11-30 06:09:00 UTC, a Sunday


def compile_template(source):
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda format: datetime.fromtimestamp(NOW, timezone.utc).strftime(format)
    return environment.from_string(source)


TEMPLATES = {
    "smollm2": "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    "bos_first": "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}",
    "llama2_alternating": "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\n' + system_message + '\n<</SYS>>\n\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}",
    "blocks_on_lines": """{%- set ns = namespace(found=false, count=0) -%}
    {% for message in messages %}
        {%- if message.role == "system" %}
            {%- set ns.found = true %}
        {% endif %}
        {% set ns.count = ns.count + 1 %}
<|{{ message.role }}|>
{{ message.content | trim }}
    {% endfor %}
{% if not ns.found %}
no system of {{ ns.count }}
{% endif %}
{% if add_generation_prompt %}
<|assistant|>
{% endif %}
""",
    "dated": "{%- if strftime_now is defined %}{% set today = strftime_now('%d %b %Y') %}{% else %}{% set today = '26 Jul 2024' %}{% endif -%}\nToday: {{ today }} {{ strftime_now('%A %B %-d %y %j %H:%M:%S %%')[:10] }}{{ strftime_now('|%a %e %m') }}\n{% for m in messages %}{{ m['role'].upper() }}: {{ m['content'] }}\n{% endfor %}",
    "json_and_methods": "{% if tools is none %}no tools{% endif %}{% if not documents %} no documents{% endif %}\n{{ messages | tojson }}\n{% for m in messages %}{{ m.content.split('\n')[-1].lstrip().startswith('H') }} {{ m.content.replace('o', '0').lower() }} {{ m.get('name', 'nobody') }} {% for k, v in m.items() %}{{ k }}={{ v | length }};{% endfor %}{{ m.content | tojson }}{% endfor %}",
    "loop_controls": "{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}{% if loop.index > 3 %}{% break %}{% endif %}{{ loop.index }}:{{ m.content }}{{ '' if loop.last else ', ' }}{% endfor %}|{{ messages | map(attribute='role') | join(',') }}|{{ messages[-1].content[:5] }}|{{ messages | selectattr('role', 'equalto', 'user') | list | length }}|{{ messages[::-1][0].role }}",
    "macro": "{% macro turn(role, content, end='\\n') %}<{{ role }}>{{ content }}</{{ role }}>{{ end }}{% endmacro %}{% for m in messages %}{{ turn(m.role, m.content) }}{% endfor %}{{ turn('assistant', '', end='') if add_generation_prompt }}",
    "trailing_newline": "{% for m in messages %}{{ m.content }}\n{% endfor %}end\n",
    "undefined_name": "[{{ nothing }}]{% if nothing is not defined %}undefined{% endif %}{{ messages[0].nothing }}{{ (messages[0].content or '') ~ 1 ~ true ~ none }}",
}
CHATS = {
    "one": [("user", "Hello")],
    "system": [("system", "Be brief."), ("user", "  Hi there \n\nHow are you?\n"), ("assistant", "Fine <b>&</b> 'ok' \"q\" \\u003c"), ("user", "你好 🙂\n")],
    "out_of_order": [("assistant", "first"), ("assistant", "")],
    "long": [("user" if i % 2 == 0 else "assistant", "turn %d\nHo" % i) for i in range(6)],
}

rows = []
for name, source in TEMPLATES.items():
    for chat, messages in CHATS.items():
        messages = [{"role": role, "content": content} for role, content in messages]
        for prompt in (True, False):
            try:
                text = compile_template(source).render(
                    messages=messages, tools=None, documents=None, add_generation_prompt=prompt, bos_token="<s>", eos_token="</s>"
                )
                rows.append({"template": name, "chat": chat, "add_generation_prompt": prompt, "text": text})
            except jinja2.exceptions.TemplateError as error:
                rows.append({"template": name, "chat": chat, "add_generation_prompt": prompt, "error": str(error)})
chats = {name: [{"role": r, "content": c} for r, c in chat] for name, chat in CHATS.items()}
out = {"made_by": "tests/oracle/chat_template.py with jinja2 " + jinja2.__version__, "now": NOW, "templates": TEMPLATES, "chats": chats, "rows": rows}
print(json.dumps(out, ensure_ascii=False, indent=1))
