// The form of the login.
"use strict";
document.getElementById("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const form = event.target, problem = document.getElementById("problem");
  const button = form.querySelector("button");
  button.disabled = true;
  problem.textContent = "";
  try {
    const answer = await M.post("/login", {
      user: form.user.value, password: form.password.value, database: form.database.value,
    });
    if (answer.ok) { location.assign("/"); return; }
    const text = (await answer.text()).trim();
    problem.textContent = text.charAt(0).toUpperCase() + text.slice(1) + ".";
  } catch (error) {
    problem.textContent = "The server does not answer.";
  }
  button.disabled = false;
  form.password.select();
});
