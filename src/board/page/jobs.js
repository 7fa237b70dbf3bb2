// The jobs of this machine: their replicas, logs, and buttons.
import { getJson, getText, post } from "/api.js";
import { make } from "/compare.js";

const byId = id => document.getElementById(id);
let log = null;  // {namespace, name, replica} of the shown log
let shown = "";

function confirmed(text) {
  const dialog = byId("confirm");
  byId("confirm-text").textContent = text;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise(resolve => dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }));
}

async function change(job, action) {
  const consequence = action === "delete" ? "Its replicas are stopped and its logs are removed."
    : action === "suspend" ? "Its replicas are stopped." : "Its replicas are started.";
  if (!await confirmed(`${action[0].toUpperCase()}${action.slice(1)} ${job.name}? ${consequence}`)) return;
  try {
    await post(`/api/jobs/${action}`, { namespace: job.namespace, name: job.name });
    byId("job-message").textContent = `${job.name}: ${action} was accepted`;
  } catch (error) {
    byId("job-message").textContent = error.message;
  }
  await refreshJobs();
}

async function showLog(job, replica) {
  log = { namespace: job.namespace, name: job.name, replica };
  byId("job-log").hidden = false;
  byId("job-log-title").textContent = `Last lines of replica ${replica} of ${job.name}`;
  await refreshLog();
}

async function refreshLog() {
  if (!log) return;
  const text = byId("job-log-text");
  try {
    text.textContent = await getText("/api/jobs/log", log) || "(no output yet)";
  } catch (error) {
    text.textContent = error.message;
    log = null;
  }
}

function jobElement(job) {
  const element = make("article", undefined, { class: "job", "aria-label": `Job ${job.name}` }), row = make("div", undefined, { class: "row" });
  row.append(make("h2", job.name), make("span", job.state || "Pending", { class: `state ${job.state.toLowerCase()}` }));
  if (job.restarts > 0) row.append(make("span", `${job.restarts} restarts`, { class: "note" }));
  const button = (text, action) => {
    const each = make("button", text, { type: "button", "aria-label": `${text} ${job.name}` });
    each.addEventListener("click", action);
    row.append(each);
  };
  if (!job.finished) button(job.suspended ? "Resume" : "Suspend", () => change(job, job.suspended ? "resume" : "suspend"));
  button("Delete", () => change(job, "delete"));
  const table = make("table");
  for (const pod of job.replicas) {
    const line = make("tr"), cell = make("td"), open = make("button", "Log", { type: "button", "aria-label": `Log of ${pod.name}` });
    open.addEventListener("click", () => showLog(job, pod.index));
    cell.append(open);
    line.append(make("th", pod.name, { scope: "row" }), make("td", pod.status), make("td", pod.node), cell);
    table.append(line);
  }
  const wide = make("div", undefined, { class: "wide" });
  wide.append(table);
  element.append(row, wide);
  return element;
}

export async function refreshJobs() {
  try {
    const { jobs } = await getJson("/api/jobs");
    const text = JSON.stringify(jobs);
    if (text !== shown) {
      shown = text;
      byId("jobs").replaceChildren(...jobs.map(jobElement));
      if (jobs.length === 0) byId("jobs").append(make("p", "No jobs. Start one with lockstep apply or lockstep submit.", { class: "note" }));
    }
  } catch (error) {
    byId("job-message").textContent = error.message;
  }
  await refreshLog();
}
