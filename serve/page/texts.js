const rows = new Map();

/* A stretch by one writer. The space before it is not coloured; a line end that was rejected is a sign. */
function stretch([kind, text]) {
  const told = kind === "rejected" ? text.replaceAll("\n", "↵") : text, word = told.trimStart();
  return [told.slice(0, told.length - word.length), made(kind === "rejected" ? "del" : "span", kind, word)];
}

/* Older tokens, then the last round, which is bold. What somebody marks with the pointer stays as it is. */
function tail(element, text) {
  const content = JSON.stringify([text.cut, text.old, text.last]);
  if (element.dataset.content === content) return;
  const chosen = getSelection();
  if (!chosen.isCollapsed && chosen.containsNode(element, true)) return;
  element.dataset.content = content;
  const last = made("span", "last", "");
  last.append(...text.last.flatMap(stretch));
  element.replaceChildren(text.cut ? "…" : "", ...text.old.flatMap(stretch), last);
}

function who(text, parts) {
  const drafts = text.drafter !== "";
  parts.rule.parentElement.hidden = parts.judge.parentElement.hidden = !drafts;
  const source = text.source ? `, now ${text.source}` : "";
  put(parts.drafter, drafts ? text.drafter + source : "none, plain decoding");
  put(parts.rule, text.rule);
  put(parts.judge, text.judge);
}

function row(text) {
  if (!rows.has(text.number)) {
    const item = by("text").content.firstElementChild.cloneNode(true);
    const parts = Object.fromEntries([...item.querySelectorAll("[data-is]")].map(part => [part.dataset.is, part]));
    rows.set(text.number, {item, parts, progress: item.querySelector("progress")});
  }
  const {item, parts, progress} = rows.get(text.number);
  put(parts.method, text.method);
  put(parts.given, text.given);
  parts.lossy.hidden = text.lossless !== false;
  who(text, parts);
  put(parts.tokens, `${figure(text.new_tokens)} of ${figure(text.length)}`);
  put(parts.speed, speed(text.now.tokens_per_s));
  put(parts.now, share(text.now.accepted, text.now.drafted));
  put(parts.all, share(text.accepted, text.drafted));
  put(parts.round, ratio(text.new_tokens, text.rounds));
  progress.max = text.length;
  progress.value = text.new_tokens;
  tail(parts.tail, text);
  return item;
}

function texts(look) {
  const items = look.texts.map(row), here = new Set(look.texts.map(text => text.number));
  for (const number of rows.keys()) if (!here.has(number)) rows.delete(number);
  const list = by("list");
  if (items.length !== list.children.length || items.some((item, place) => list.children[place] !== item)) {
    list.replaceChildren(...items);
  }
  by("none").hidden = items.length > 0;
  const over = Object.values(look.whole.finished).reduce((sum, count) => sum + count, 0);
  put(by("count"), `${figure(look.running)} under way, ${figure(look.waiting)} waiting, ${figure(over)} over`);
  const more = look.running - items.length;
  put(by("more"), more > 0 ? `The ${items.length} newest are shown; ${figure(more)} more are under way.` : "");
}
