"use strict";

const FIELDS = ["paper", "verdict", "kind"];

function setUpFilters(form) {
  const rows = [...document.querySelectorAll("table.claims tbody tr")];
  const has = (list, wanted) => !wanted || list.split("|").includes(wanted);

  function apply() {
    const wanted = Object.fromEntries(FIELDS.map((name) => [name, form.elements[name].value]));
    const text = form.elements.text.value.trim().toLowerCase();
    let claims = 0;
    let scopes = 0;
    for (const row of rows) {
      let shown = 0;
      for (const item of row.querySelectorAll("li")) {
        item.hidden = !(has(item.dataset.verdict, wanted.verdict) && has(item.dataset.kind, wanted.kind));
        shown += !item.hidden;
      }
      row.hidden = !shown || !has(row.dataset.paper, wanted.paper) || !row.textContent.toLowerCase().includes(text);
      claims += !row.hidden;
      scopes += row.hidden ? 0 : shown;
    }
    document.getElementById("count").value = `${claims} claims, ${scopes} scopes`;
  }

  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(apply));
  form.hidden = false;
  apply();
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // browsers that keep the clipboard from local files
    const area = Object.assign(document.createElement("textarea"), { value: text });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

function setUpCopying(button) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    await copy(button.parentElement.querySelector("code").textContent);
    button.textContent = "Copied";
    document.getElementById("status").textContent = "Copied";
    button.focus();
    setTimeout(() => {
      button.textContent = "Copy";
      document.getElementById("status").textContent = "";
    }, 1500);
  });
}

function showTime(place) {
  const seconds = place.dataset.scopes.split("|").reduce((sum, scope) => sum + (TIMES[scope] ?? 0), 0);
  const time = `${seconds < 0.1 ? "less than 0.1" : seconds.toFixed(1)} s`;
  place.textContent = place.matches("td") ? time : ` Checked in ${time}.`;
}

document.querySelectorAll("form.filters").forEach(setUpFilters);
document.querySelectorAll("button.copy").forEach(setUpCopying);
document.querySelectorAll(".time").forEach(showTime);
