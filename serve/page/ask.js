function asked() {
  const speculative = {method: by("method").value};
  for (const word of by("parameters").value.split(/[\s,]+/).filter(Boolean)) {
    const [name, value] = word.split("=");
    if (value === undefined) throw new Error(`${word} given; expected name=value, such as gamma=2`);
    speculative[name] = value;
  }
  const messages = [{role: "user", content: by("prompt").value}];
  return {messages, speculative, max_tokens: Number(by("length").value), temperature: 0, stream: true,
    stream_options: {include_usage: true}};
}

function offer(about) {
  const chosen = by("method").value || about.default;
  by("method").replaceChildren(...about.methods.map(({name, label}) =>
    new Option(name === about.default ? `${label}, the default` : label, name, false, name === chosen)));
}

/* Open where nothing else is to be seen, and there is room. */
function invite(look) {
  by("asking").open ||= !look.running && matchMedia("(min-width: 40rem)").matches;
}

async function tell(body, signal) {
  const start = performance.now(), method = by("method").value;
  const answer = await fetch("v1/chat/completions", {method: "POST", signal, body,
    headers: {"Content-Type": "application/json", ...headers()}});
  if (!answer.ok) throw new Error((await answer.json()).error.message);
  for await (const data of events(answer)) {
    if (data === "[DONE]") break;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new Error(chunk.error.message);
    by("answer").textContent += chunk.choices[0]?.delta?.content ?? "";
    if (chunk.usage) by("outcome").textContent = `${method}: ${counted(chunk.usage.completion_tokens, "token")} in ` +
      `${((performance.now() - start) / 1000).toFixed(1)} s, as this page saw it`;
  }
}

let asking = null;
by("stop").onclick = () => asking && asking.abort();
by("prompt").onkeydown = event => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) by("ask").requestSubmit();
};
by("ask").onsubmit = async event => {
  event.preventDefault();
  if (by("send").disabled) return;
  asking = new AbortController();
  by("send").disabled = !(by("stop").disabled = false);
  by("answer").textContent = by("outcome").textContent = "";
  try {
    await tell(JSON.stringify(asked()), asking.signal);
  } catch (error) {
    by("outcome").textContent = error.name === "AbortError" ? "stopped" : `not answered: ${error.message}`;
  }
  by("send").disabled = !(by("stop").disabled = true);
};
