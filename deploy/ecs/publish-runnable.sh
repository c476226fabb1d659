#!/bin/sh
# Publishes the number of runnable chunks to CloudWatch, once. Run it every minute (an EventBridge schedule that starts a small task with psql and the AWS CLI).
# Needs DATABASE_URL (of any role that may read dispatch and job_chunk, such as exportd_consumer), INSTALLATION, and the right cloudwatch:PutMetricData.
set -eu
chunks=$(psql "$DATABASE_URL" -qAtX -v ON_ERROR_STOP=1 -c "
  select (select count(*) from (select from dispatch where state <> 'WAIT' limit 1000000) owed)
       + (select count(*) from job_chunk where status = 'RUNNING')")
aws cloudwatch put-metric-data --namespace exportd --metric-name RunnableChunks --unit Count --value "$chunks" --dimensions "Installation=$INSTALLATION"
