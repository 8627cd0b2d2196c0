// Opens the answers of exercises before a page is printed: paper has nothing to click.
window.addEventListener("beforeprint", () => {
    for (const answer of document.querySelectorAll("details")) answer.open = true;
});
