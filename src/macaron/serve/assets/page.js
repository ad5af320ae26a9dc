// The page of `macaron serve`. It speaks the LibreTranslate protocol of its own server, by relative addresses, so that it works
// behind a proxy's path. Text becomes part of the page as text only (value, textContent), never as HTML.
"use strict";
(() => {
  // Milliseconds: a pause in typing, and the longest wait although typing goes on.
  const PAUSE = 300, LONGEST_WAIT = 1000;
  const ALTERNATIVES = 3;
  const LONG = 280; // characters of a text that is set smaller
  const element = (id) => document.getElementById(id);
  const [desk, text, translation, source, target, swap, copy, clear, key, file, made, alternatives, inside, keyBox] = ["desk", "text",
    "translation", "source", "target", "swap", "copy", "clear", "key", "file", "document", "alternatives", "inside", "key-box"].map(element);
  const length = (string) => [...string].length; // in code points, as the server counts
  const count = (number) => number.toLocaleString("en");
  const say = (message) => { element("status").textContent = message; };

  let settings = {}, languages = [], names = new Map();
  let detected = null;
  const store = (area, name, value) => { try { area.setItem(name, value); } catch { /* not remembered */ } };
  const stored = (area, name) => { try { return area.getItem(name) ?? ""; } catch { return ""; } };

  // --- requests -------------------------------------------------------------------------------------------------------------------

  // What went wrong, in a sentence. `again`: seconds until it is worth another try; 0: when the reader says so; null: never.
  class Problem extends Error {
    constructor(message, again = null) { super(message); this.again = again; }
  }
  const seconds = (number) => `${count(number)} ${number === 1 ? "second" : "seconds"}`;
  function refusal(response, answer) {
    const after = Math.min(Math.max(Math.ceil(Number(response.headers.get("Retry-After"))) || 5, 1), 3600);
    const detail = typeof answer?.error === "string" ? answer.error : "";
    const told = detail ? detail[0].toUpperCase() + detail.slice(1).replace(/\.?$/, ".") : "";
    if (response.status === 429) return new Problem(`Too many requests. The page tries again in ${seconds(after)}.`, after);
    if (response.status === 503) return new Problem(`The server is busy. The page tries again in ${seconds(after)}.`, after);
    if (response.status >= 500) return new Problem(`The server failed (${response.status}). ${told}`, 0);
    if (response.status === 401 || response.status === 403) keyBox.open = true;
    return new Problem(told || `The server refused the request (${response.status}).`);
  }
  async function request(path, body, signal) {
    const options = { signal, cache: "no-store" };
    if (body instanceof FormData) Object.assign(options, { method: "POST", body });
    else if (body) Object.assign(options, { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } });
    let response;
    try { response = await fetch(path, options); }
    catch (error) {
      if (signal?.aborted) throw error;
      throw new Problem("The server cannot be reached. The page tries again in 5 seconds; the text stays here.", 5);
    }
    if (!response.ok) throw refusal(response, await response.json().catch(() => null));
    return response;
  }
  async function ask(path, body, signal) {
    const response = await request(path, body, signal);
    try { return await response.json(); }
    catch (error) { throw signal?.aborted ? error : new Problem("The server's answer was cut off.", 0); }
  }

  // A problem is shown beside what it is about, and goes when the next try begins.
  const retries = new Map();
  function resolve(name) {
    clearTimeout(retries.get(name));
    document.querySelector(`[data-problem="${name}"]`).hidden = true;
  }
  function report(name, problem, retry) {
    if (!(problem instanceof Problem)) console.error(problem);
    const box = document.querySelector(`[data-problem="${name}"]`), again = problem.again ?? null;
    clearTimeout(retries.get(name));
    box.hidden = false;
    box.querySelector("p").textContent = problem instanceof Problem ? problem.message : `The page failed: ${problem.message}`;
    box.querySelector("button").hidden = again === null;
    box.querySelector("button").onclick = retry;
    if (again) retries.set(name, setTimeout(retry, 1000 * again));
  }

  // --- languages ------------------------------------------------------------------------------------------------------------------

  const nameOf = (code) => names.get(code) ?? code;
  const targetsOf = (code) => code === "auto"
    ? [...new Set(languages.flatMap((each) => each.targets))]
    : languages.find((each) => each.code === code)?.targets ?? [];
  const spoken = () => source.value === "auto" ? detected : source.value;
  function fill(select, codes, wanted) {
    select.replaceChildren(...codes.map((code) => new Option(code === "auto" ? "Detect language" : nameOf(code), code)));
    select.value = codes.includes(wanted) ? wanted : codes[0];
  }
  function showLanguages() {
    const auto = source.querySelector("[value=auto]");
    if (auto) auto.textContent = detected ? nameOf(detected) : "Detect language";
    element("from").textContent = source.value === "auto" && detected ? "Detected" : "From";
    text.lang = spoken() ?? "";
    translation.lang = target.value;
    inside.querySelector("button").disabled = !spoken() || !text.value.trim();
    swap.disabled = !targetsOf(target.value).includes(spoken());
    swap.title = swap.disabled && spoken() ? `No model translates from ${nameOf(target.value)} to ${nameOf(spoken())}` : "Swap languages";
  }
  function choose(from, to) {
    source.value = from;
    fill(target, targetsOf(source.value).filter((code) => code !== source.value), to);
    detected = null;
    store(localStorage, "macaron-pair", `${source.value} ${target.value}`);
    showLanguages();
    translate();
  }

  // --- the translation ------------------------------------------------------------------------------------------------------------

  let running = null, timer = 0, latest = Infinity, shown = "";
  function show(answer) {
    shown = answer.translatedText ?? "";
    translation.textContent = shown;
    detected = answer.detectedLanguage?.language ?? (source.value === "auto" ? detected : null);
    desk.dataset.state = "";
    copy.disabled = !shown;
    showLanguages();
    showAlternatives(answer.alternatives ?? []);
  }
  function showAlternatives(others) {
    const list = alternatives.querySelector("ul");
    list.replaceChildren(...others.filter((each) => each !== shown).map((each) => {
      const item = document.createElement("li"), button = document.createElement("button");
      Object.assign(button, { type: "button", textContent: each, lang: target.value, dir: "auto" });
      button.addEventListener("click", () => { // exchanged with the translation
        [button.textContent, shown] = [shown, button.textContent];
        translation.textContent = shown;
      });
      item.append(button);
      return item;
    }));
    const none = shown ? "There are no others." : "Other translations of the text, best first.";
    element("alternatives-note").textContent = list.children.length ? "Choose one to put it in place of the translation." : none;
  }
  function showCount() {
    const used = length(text.value), limit = settings.charLimit > 0 ? settings.charLimit : Infinity;
    element("count").textContent = limit < Infinity ? `${count(used)} / ${count(limit)}` : `${count(used)} characters`;
    element("count").classList.toggle("over", used > limit);
    desk.classList.toggle("long", used > LONG);
    clear.hidden = !used;
    inside.querySelector("button").disabled = !spoken() || !text.value.trim();
    return used - limit;
  }
  async function translate() {
    clearTimeout(timer);
    latest = Infinity;
    running?.abort();
    running = null;
    resolve("text");
    const over = showCount();
    if (!text.value.trim()) { detected = null; show({}); return; }
    if (over > 0) {
      desk.dataset.state = "stale";
      report("text", new Problem(`The text is too long: this server takes ${count(settings.charLimit)} characters. Remove ${count(over)}.`));
      return;
    }
    if (settings.keyRequired && !key.value) {
      report("text", new Problem("This server asks for an API key. Enter it above."));
      return;
    }
    const mine = running = new AbortController();
    desk.dataset.state = "waiting";
    try {
      const body = { q: text.value, source: source.value, target: target.value, format: "text", alternatives: alternatives.open ? ALTERNATIVES : 0 };
      if (key.value) body.api_key = key.value;
      const answer = await ask("translate", body, mine.signal);
      if (running === mine) show(answer);
    } catch (problem) {
      if (running !== mine) return;
      desk.dataset.state = "stale";
      report("text", problem, translate);
    }
  }
  // After a pause in typing. A request that runs is cancelled when the next one starts, so there is something to read meanwhile.
  function soon() {
    showCount();
    if (!languages.length) return; // `start` translates what is there
    const now = performance.now();
    latest = Math.min(latest, now + LONGEST_WAIT);
    clearTimeout(timer);
    timer = setTimeout(translate, text.value.trim() ? Math.max(0, Math.min(PAUSE, latest - now)) : 0);
  }

  async function copyTranslation() {
    try { await navigator.clipboard.writeText(shown); }
    catch { // beyond localhost, a page without https has no clipboard
      getSelection().selectAllChildren(translation);
      if (!document.execCommand("copy")) { say("The translation is selected: copy it with Ctrl+C."); return; }
      getSelection().removeAllRanges();
    }
    say("Copied.");
    copy.textContent = "Copied";
    setTimeout(() => { copy.textContent = "Copy"; }, 1500);
  }

  // --- documents ------------------------------------------------------------------------------------------------------------------

  let sending = null;
  async function translateDocument(chosen) {
    sending?.abort();
    resolve("document");
    const mine = sending = new AbortController(), form = new FormData();
    const values = { file: chosen, source: source.value, target: target.value, ...(key.value && { api_key: key.value }) };
    for (const [name, value] of Object.entries(values)) form.append(name, value);
    const cancel = Object.assign(document.createElement("button"), { type: "button", textContent: "Cancel" });
    cancel.addEventListener("click", () => { mine.abort(); made.replaceChildren("Cancelled."); file.focus(); });
    made.replaceChildren(`Translating ${chosen.name} …`, cancel);
    try {
      const answer = await ask("translate_file", form, mine.signal);
      // The server gives the file once; the page keeps it. The address may name another host than the proxy's.
      const path = new URL(answer.translatedFileUrl, location.href).pathname.match(/download_file\/.*/)[0];
      const blob = await (await request(path, null, mine.signal)).blob();
      const link = document.createElement("a"), dot = chosen.name.lastIndexOf(".");
      link.href = URL.createObjectURL(blob);
      link.download = `${chosen.name.slice(0, dot)}.${target.value}${chosen.name.slice(dot)}`;
      link.textContent = `Save ${link.download}`;
      made.replaceChildren(link);
    } catch (problem) {
      if (mine.signal.aborted) return;
      made.replaceChildren();
      report("document", problem, () => translateDocument(chosen));
    }
  }

  // --- the start ------------------------------------------------------------------------------------------------------------------

  async function start() {
    resolve("text");
    try { [languages, settings] = await Promise.all([ask("languages"), ask("frontend/settings")]); }
    catch (problem) { report("text", problem, start); return; }
    names = new Map(languages.map(({ code, name }) => [code, name]));
    languages = languages.map((each) => ({ ...each, targets: each.targets.filter((code) => code !== each.code) }))
      .filter((each) => each.targets.length);
    text.disabled = !languages.length;
    if (!languages.length) { report("text", new Problem("This server has no translation model, so there is nothing to type here.")); return; }
    key.value = stored(sessionStorage, "macaron-key");
    keyBox.hidden = !(settings.keyRequired || settings.apiKeys);
    keyBox.open = !key.value;
    const codes = languages.map(({ code }) => code), usual = settings.language ?? {};
    const [from, to] = stored(localStorage, "macaron-pair").split(" ");
    fill(source, codes.length > 1 ? ["auto", ...codes] : codes, codes.includes(from) || from === "auto" ? from : usual.source?.code);
    const formats = settings.supportedFilesFormat ?? [];
    element("documents").hidden = !settings.filesTranslation;
    file.accept = formats.join(",");
    element("file-note").textContent = `${formats.join(", ")}, in the languages chosen above`;
    element("more").hidden = false;
    choose(source.value, to || usual.target?.code);
    if (matchMedia("(pointer: fine)").matches) text.focus();
  }

  text.addEventListener("input", soon);
  source.addEventListener("change", () => choose(source.value, target.value));
  target.addEventListener("change", () => choose(source.value, target.value));
  swap.addEventListener("click", () => {
    const from = spoken();
    if (shown) text.value = shown;
    choose(target.value, from);
    text.focus();
  });
  clear.addEventListener("click", () => { text.value = ""; translate(); text.focus(); });
  copy.addEventListener("click", copyTranslation);
  alternatives.addEventListener("toggle", () => { if (alternatives.open) translate(); });
  element("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    store(sessionStorage, "macaron-key", key.value);
    keyBox.open = !key.value;
    translate();
    text.focus();
  });
  file.addEventListener("change", () => {
    if (file.files.length) translateDocument(file.files[0]);
    file.value = ""; // so that the same file can be chosen again
  });
  for (const [name, over] of [["dragenter", true], ["dragleave", false], ["drop", false]])
    file.addEventListener(name, () => file.parentElement.classList.toggle("over", over));
  // The sentence at the cursor, or what is selected.
  inside.addEventListener("submit", () => {
    const { selectionStart: from, selectionEnd: to, value } = text, chosen = value.slice(from, to).trim();
    const values = { q: chosen || value, at: chosen ? 0 : length(value.slice(0, to).replace(/\s/g, "")), source: spoken(), target: target.value, api_key: key.value };
    for (const [name, each] of Object.entries(values)) inside.elements[name].value = each;
  });
  start();
})();
