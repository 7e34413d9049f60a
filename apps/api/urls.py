"""The addresses of the API: no trailing slash anywhere."""

from django.urls import include, path

from apps.api import (
    docs,
    forecast,
    health,
    insights,
    job_actions,
    job_batch,
    job_by_key,
    job_lists,
    jobs,
    letters,
    past,
    queues,
    runs,
    schedules,
    targets,
)

app_name = "api"

resources = [
    path("jobs", jobs.Jobs.as_view(), name="jobs"),
    path("jobs/batch", job_batch.Batch.as_view(), name="job-batch"),
    path("jobs/by-key/<path:key>", job_by_key.JobByKey.as_view(), name="job-by-key"),
    path("jobs/<str:job_id>", jobs.Job.as_view(), name="job"),
    path("jobs/<str:job_id>/run", job_actions.RunNow.as_view(), name="run-now"),
    path("jobs/<str:job_id>/pause", job_actions.Pause.as_view(), name="pause"),
    path("jobs/<str:job_id>/resume", job_actions.Resume.as_view(), name="resume"),
    path("jobs/<str:job_id>/skip-next", job_actions.SkipNext.as_view(), name="skip"),
    path("jobs/<str:job_id>/restore", job_actions.Restore.as_view(), name="restore"),
    path("jobs/<str:job_id>/backfill", past.Backfills.as_view(), name="backfill"),
    path(
        "jobs/<str:job_id>/backfill/<str:backfill_id>/cancel",
        past.CancelBackfill.as_view(),
        name="cancel-backfill",
    ),
    path("jobs/<str:job_id>/explain", past.Explain.as_view(), name="explain"),
    path("jobs/<str:job_id>/next", job_lists.Next.as_view(), name="next"),
    path("jobs/<str:job_id>/runs", job_lists.JobRuns.as_view(), name="job-runs"),
    path("jobs/<str:job_id>/events", job_lists.Events.as_view(), name="events"),
    path("jobs/<str:job_id>/revisions", job_lists.Revisions.as_view(), name="revs"),
    path("runs", runs.Runs.as_view(), name="runs"),
    path("runs/<str:run_id>", runs.Run.as_view(), name="run"),
    path("runs/<str:run_id>/attempts", runs.Attempts.as_view(), name="attempts"),
    path("runs/<str:run_id>/cancel", runs.Cancel.as_view(), name="cancel"),
    path("runs/<str:run_id>/resolve", runs.Resolve.as_view(), name="resolve"),
    path("runs/<str:run_id>/reschedule", runs.Reschedule.as_view(), name="reschedule"),
    path("runs/<str:run_id>/retry", runs.Retry.as_view(), name="retry"),
    path("dead-letters", letters.DeadLetters.as_view(), name="dead-letters"),
    path("dead-letters/redrive", letters.Redrive.as_view(), name="redrive"),
    path("dead-letters/discard", letters.Discard.as_view(), name="discard"),
    path("dead-letters/<str:run_id>", letters.DeadLetter.as_view(), name="letter"),
    path("dead-letters/<str:run_id>/note", letters.Note.as_view(), name="note"),
    path("queues/paused", queues.PausedQueues.as_view(), name="paused-queues"),
    path("queues/<str:queue>/pause", queues.PauseQueue.as_view(), name="pause-queue"),
    path(
        "queues/<str:queue>/resume", queues.ResumeQueue.as_view(), name="resume-queue"
    ),
    path("targets", targets.Targets.as_view(), name="targets"),
    path("targets/open", targets.OpenCircuit.as_view(), name="open-circuit"),
    path("targets/close", targets.CloseCircuit.as_view(), name="close-circuit"),
    path("schedules/preview", schedules.Preview.as_view(), name="preview"),
    path("schedules/suggest", schedules.Suggest.as_view(), name="suggest"),
    path("forecast", forecast.Forecast.as_view(), name="forecast"),
    path(
        "insights/long-running",
        insights.LongRunningJobs.as_view(),
        name="long-running",
    ),
]

# The short forms that programs were promised before there was a version.
short = [
    path("jobs", jobs.Jobs.as_view(), name="short-jobs"),
    path("jobs/<str:job_id>", jobs.Job.as_view(), name="short-job"),
    path("jobs/<str:job_id>/run", job_actions.RunNow.as_view(), name="short-run-now"),
    path("runs/<str:run_id>", runs.Run.as_view(), name="short-run"),
]

urlpatterns = [
    path("api/v1/", include(resources)),
    path("", include(short)),
    path("api/v1/openapi.json", docs.schema, name="schema"),
    path("api/v1/docs", docs.page, name="docs"),
    path("livez", health.livez, name="livez"),
    path("readyz", health.readyz, name="readyz"),
    path("status/firing", health.fires, name="firing"),
    path("status", health.status, name="status"),
]
